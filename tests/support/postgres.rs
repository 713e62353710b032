//! A throwaway PostgreSQL.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use super::process::Pid;
use super::server::{Kind, Options, Server, find, output_of};

/// A server on 127.0.0.1 with a user `leasehold`, who is no superuser and needs a password.
pub struct Postgres {
    server: Server,
    password: String,
    psql: PathBuf,
}

impl Postgres {
    pub fn start() -> Postgres {
        Self::start_with(Options::default())
    }

    pub fn start_with(options: Options<'_>) -> Postgres {
        let bin = installed();
        let program = find(&["postgres"], &bin, "postgresql");
        let kind = Kind {
            name: "PostgreSQL",
            user: "postgres",
            stop: "INT",
            abort: "QUIT",
            ready,
        };
        let server = Server::new(kind, |dir| {
            vec![program.into(), "-D".into(), dir.join("data").into()]
        });
        let initdb = find(&["initdb"], &bin, "postgresql");
        let postgres = Postgres {
            server,
            password: uuid::Uuid::new_v4().simple().to_string(),
            psql: find(&["psql"], &bin, "postgresql-client"),
        };
        postgres.initialise(&initdb);
        let config = postgres.server.dir().join("data/postgresql.conf");
        let given = fs::read_to_string(&config).expect("initdb wrote it");
        postgres.server.start_on_free_port(|port| {
            let ours = postgres.configuration(port, options);
            postgres.server.write(&config, &format!("{given}\n{ours}"));
        });
        postgres.exec(&format!(
            "CREATE ROLE leasehold LOGIN CREATEDB PASSWORD '{}';
             CREATE DATABASE leasehold OWNER leasehold;",
            postgres.password
        ));
        postgres
    }

    /// The server of this test binary, started by the first call and gone when the process ends.
    pub fn shared() -> &'static Postgres {
        static SHARED: OnceLock<Postgres> = OnceLock::new();
        SHARED.get_or_init(Postgres::start)
    }

    fn initialise(&self, initdb: &Path) {
        let data = self.server.dir().join("data");
        let mut command = self.server.command(initdb);
        command.arg("-D").arg(data).args([
            "--username=postgres",
            "--auth-local=trust",
            "--auth-host=scram-sha-256",
            "--encoding=UTF8",
            "--locale=C",
            "--no-sync",
        ]);
        output_of(&mut command, "");
    }

    fn configuration(&self, port: u16, options: Options<'_>) -> String {
        // Shared memory in the data directory goes with it when the server is killed.
        let mut text = format!(
            "listen_addresses = '127.0.0.1'\nport = {port}\n\
             unix_socket_directories = '{}'\n\
             max_connections = 300\nshared_buffers = 64MB\n\
             dynamic_shared_memory_type = mmap\n",
            self.server.dir().display()
        );
        if !options.fsync {
            text.push_str("fsync = off\nfull_page_writes = off\n");
        }
        for line in options.extra {
            text.push_str(line);
            text.push('\n');
        }
        text
    }

    /// The URL of a database that exists from the start.
    pub fn url(&self) -> String {
        self.url_of("leasehold")
    }

    pub fn url_of(&self, database: &str) -> String {
        let Postgres {
            server, password, ..
        } = self;
        format!(
            "postgres://leasehold:{password}@{}/{database}",
            server.address()
        )
    }

    /// The URL of the same database through the Unix socket, where no password is asked for.
    pub fn socket_url_of(&self, database: &str) -> String {
        let dir = self.server.dir().display();
        format!(
            "postgres:///{database}?host={dir}&port={}&user=leasehold",
            self.server.port()
        )
    }

    /// Makes an empty database, owned by `leasehold`, and returns its URL.
    pub fn fresh_database(&self) -> String {
        let name = self.server.next_database();
        self.exec(&format!("CREATE DATABASE {name} OWNER leasehold"));
        self.url_of(&name)
    }

    /// Runs SQL as the superuser, in the database `postgres`; returns the rows, fields separated by `|`.
    #[track_caller]
    pub fn exec(&self, sql: &str) -> String {
        self.exec_in("postgres", sql)
    }

    #[track_caller]
    pub fn exec_in(&self, database: &str, sql: &str) -> String {
        let mut command = self.server.command(&self.psql);
        command
            .args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1"])
            .arg("-h")
            .arg(self.server.dir())
            .args(["-p", &self.server.port().to_string()])
            .args(["-U", "postgres", "-d", database, "-f", "-"]);
        output_of(&mut command, sql).trim_end().to_owned()
    }

    /// Ends every client session, as an administrator or a failover would; returns how many there were.
    pub fn terminate_all_sessions(&self) -> usize {
        let ended = self.exec(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
             WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()",
        );
        ended.parse().expect("a count")
    }

    pub fn password(&self) -> &str {
        &self.password
    }

    pub fn address(&self) -> SocketAddr {
        self.server.address()
    }

    pub fn dir(&self) -> &Path {
        self.server.dir()
    }

    pub fn pid(&self) -> Pid {
        self.server.pid()
    }

    pub fn log(&self) -> String {
        self.server.log()
    }

    /// Ends all sessions and the server; see [`Server::stop`].
    pub fn stop(&self) {
        self.server.stop();
    }

    /// Starts the stopped or killed server again.
    pub fn start_again(&self) {
        self.server.start();
    }

    pub fn restart(&self) {
        self.server.restart();
    }

    /// kill -9 of all its processes; commits survive.
    pub fn kill(&self) {
        self.server.kill();
    }
}

/// The directories of the installed versions, the newest first.
fn installed() -> Vec<PathBuf> {
    let entries = fs::read_dir("/usr/lib/postgresql").into_iter().flatten();
    let mut versions: Vec<u32> = entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect();
    versions.sort_unstable_by(|a, b| b.cmp(a));
    versions
        .iter()
        .map(|version| PathBuf::from(format!("/usr/lib/postgresql/{version}/bin")))
        .collect()
}

/// What pg_ctl waits for: the status on the eighth line, under the pid of this very start.
fn ready(dir: &Path, pid: Pid) -> bool {
    let text = fs::read_to_string(dir.join("data/postmaster.pid")).unwrap_or_default();
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    lines.first() == Some(&pid.to_string().as_str()) && lines.get(7) == Some(&"ready")
}
