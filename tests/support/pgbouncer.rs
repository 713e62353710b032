//! A throwaway PgBouncer in front of a throwaway PostgreSQL.

use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::Path;

use super::Postgres;
use super::process::Pid;
use super::server::{Kind, Server, find};

/// A pooler in transaction mode: each transaction gets whichever server session is free.
pub struct PgBouncer {
    server: Server,
}

impl PgBouncer {
    /// In front of `postgres`, and of every database of it.
    pub fn in_front_of(postgres: &Postgres) -> PgBouncer {
        let program = find(&["pgbouncer"], &[], "pgbouncer");
        let kind = Kind {
            name: "PgBouncer",
            user: "postgres",
            stop: "INT",
            abort: "KILL",
            ready,
        };
        let server = Server::new(kind, |dir| {
            vec![program.into(), dir.join("pgbouncer.ini").into()]
        });
        let dir = server.dir().to_owned();
        let users = format!("\"leasehold\" \"{}\"\n", postgres.password());
        server.write(&dir.join("users"), &users);
        server.start_on_free_port(|port| {
            let text = configuration(&dir, port, postgres.address());
            server.write(&dir.join("pgbouncer.ini"), &text);
        });
        PgBouncer { server }
    }

    /// The URL of the same database by way of the pooler.
    pub fn url_of(&self, direct: &str) -> String {
        let (credentials, rest) = direct.split_once('@').expect("a URL with a user");
        let (_, database) = rest.split_once('/').expect("a URL with a database");
        format!("{credentials}@{}/{database}", self.server.address())
    }
}

/// Two server sessions for all clients: they are shared as soon as there are three.
fn configuration(dir: &Path, port: u16, postgres: SocketAddr) -> String {
    let (dir, host, to) = (dir.display(), postgres.ip(), postgres.port());
    format!(
        "[databases]\n* = host={host} port={to}\n\
         [pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir = {dir}\n\
         auth_type = plain\nauth_file = {dir}/users\n\
         pool_mode = transaction\ndefault_pool_size = 2\n"
    )
}

/// Whether it takes clients: it makes its socket last of all.
fn ready(dir: &Path, _: Pid) -> bool {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(".s.PGSQL."))
        .any(|socket| UnixStream::connect(socket.path()).is_ok())
}
