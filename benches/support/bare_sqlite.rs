//! A renewal on SQLite through the bare C library: the statements that `elect` runs, prepared once.

use std::ffi::{CString, c_int};
use std::ptr::null_mut;

use libsqlite3_sys as ffi;

pub struct Bare {
    conn: *mut ffi::sqlite3,
    statements: Vec<*mut ffi::sqlite3_stmt>,
}

const NOW: &str = "strftime('%Y-%m-%d %H:%M:%f000', 'now')";
const END: &str = "strftime('%Y-%m-%d %H:%M:%f000', 'now',
    printf('+%d.%03d seconds', ?3 / 1000000, ?3 / 1000 % 1000))";

/// The transaction that renews the lease and the registration.
fn renewal() -> [String; 4] {
    [
        "BEGIN IMMEDIATE".to_owned(),
        format!(
            "UPDATE gemstone_election_leader SET lease_expires_at = {END}, updated_at = {NOW}
             WHERE ns = ?1 AND leader_id = ?2 AND lease_expires_at > {NOW}"
        ),
        format!(
            "UPDATE gemstone_election_candidate SET last_heartbeat_at = {NOW}, expires_at = {END}
             WHERE ns = ?1 AND candidate_id = ?2"
        ),
        "COMMIT".to_owned(),
    ]
}

impl Bare {
    pub fn open(path: &str) -> Bare {
        let path = CString::new(path).unwrap();
        let mut conn = null_mut();
        // SAFETY: a path that ends in zero, and a place for the handle.
        let opened = unsafe { ffi::sqlite3_open(path.as_ptr(), &mut conn) };
        assert_eq!(opened, ffi::SQLITE_OK);
        let mut bare = Bare {
            conn,
            statements: Vec::new(),
        };
        let pragmas = [
            "PRAGMA busy_timeout = 5000",
            "PRAGMA journal_mode = WAL",
            "PRAGMA synchronous = FULL",
        ];
        for pragma in pragmas {
            let statement = bare.prepare(pragma);
            step(statement);
            // SAFETY: a statement of our own, not used again.
            unsafe { ffi::sqlite3_finalize(statement) };
        }
        bare.statements = renewal().iter().map(|sql| bare.prepare(sql)).collect();
        bare
    }

    fn prepare(&self, sql: &str) -> *mut ffi::sqlite3_stmt {
        let (text, length) = (sql.as_ptr().cast(), c_int::try_from(sql.len()).unwrap());
        let mut statement = null_mut();
        // SAFETY: an open handle, a text with its length, and a place for the statement.
        let prepared =
            unsafe { ffi::sqlite3_prepare_v2(self.conn, text, length, &mut statement, null_mut()) };
        assert_eq!(prepared, ffi::SQLITE_OK, "{sql}");
        statement
    }

    /// As `elect` does for the leader, which `me` must be.
    pub fn renew(&mut self, ns: &str, me: &str, seconds: i64) {
        for (place, statement) in self.statements.iter().enumerate() {
            let values = [ns, me];
            // SAFETY: statements of this handle; the texts outlive the step. A statement that does not name a value
            // refuses it, which changes nothing.
            unsafe {
                for (index, text) in (1..).zip(values) {
                    let length = c_int::try_from(text.len()).unwrap();
                    let text = text.as_ptr().cast();
                    ffi::sqlite3_bind_text(*statement, index, text, length, None);
                }
                ffi::sqlite3_bind_int64(*statement, 3, seconds * 1_000_000);
            }
            step(*statement);
            if place == 1 || place == 2 {
                // SAFETY: an open handle.
                let renewed = unsafe { ffi::sqlite3_changes(self.conn) };
                assert_eq!(renewed, 1);
            }
        }
    }
}

/// Runs a statement to its end and makes it ready for the next time.
fn step(statement: *mut ffi::sqlite3_stmt) {
    // SAFETY: a statement of our own; a text is read before the next step.
    unsafe {
        loop {
            match ffi::sqlite3_step(statement) {
                ffi::SQLITE_ROW => {
                    std::hint::black_box(ffi::sqlite3_column_text(statement, 0));
                }
                ffi::SQLITE_DONE => break,
                other => panic!("SQLite answers {other}"),
            }
        }
        ffi::sqlite3_reset(statement);
    }
}

impl Drop for Bare {
    fn drop(&mut self) {
        // SAFETY: each made by this handle, and not used again.
        unsafe {
            for statement in &self.statements {
                ffi::sqlite3_finalize(*statement);
            }
            ffi::sqlite3_close(self.conn);
        }
    }
}
