//! A throwaway MariaDB.

use std::io::Read;
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use super::process::Pid;
use super::server::{Kind, Options, Server, find, output_of};

const SOCKET: &str = "socket";

/// A server on 127.0.0.1 with a user `leasehold`, who needs a password.
pub struct MariaDb {
    server: Server,
    password: String,
    client: PathBuf,
}

impl MariaDb {
    pub fn start() -> MariaDb {
        Self::start_with(Options::default())
    }

    pub fn start_with(options: Options<'_>) -> MariaDb {
        let program = find(&["mariadbd", "mysqld"], &[], "mariadb-server");
        let kind = Kind {
            name: "MariaDB",
            user: "mysql",
            stop: "TERM",
            abort: "KILL",
            ready,
        };
        let server = Server::new(kind, |dir| {
            let mut defaults = std::ffi::OsString::from("--defaults-file=");
            defaults.push(dir.join("my.cnf"));
            vec![program.into(), defaults]
        });
        let mariadb = MariaDb {
            server,
            password: uuid::Uuid::new_v4().simple().to_string(),
            client: find(&["mariadb", "mysql"], &[], "mariadb-client"),
        };
        mariadb.initialise();
        let config = mariadb.server.dir().join("my.cnf");
        mariadb.server.start_on_free_port(|port| {
            let text = mariadb.configuration(port, options);
            mariadb.server.write(&config, &text);
        });
        // Under both names: an account of the more exact host wins, and through the socket that is `localhost`.
        for host in ["%", "localhost"] {
            mariadb.exec(&format!(
                "CREATE USER leasehold@'{host}' IDENTIFIED BY '{}';
                 GRANT ALL ON *.* TO leasehold@'{host}';",
                mariadb.password
            ));
        }
        mariadb.exec("CREATE DATABASE leasehold CHARACTER SET utf8mb4");
        mariadb
    }

    /// The server of this test binary, started by the first call and gone when the process ends.
    pub fn shared() -> &'static MariaDb {
        static SHARED: OnceLock<MariaDb> = OnceLock::new();
        SHARED.get_or_init(MariaDb::start)
    }

    fn initialise(&self) {
        let program = find(
            &["mariadb-install-db", "mysql_install_db"],
            &[],
            "mariadb-server",
        );
        let mut command = self.server.command(program);
        command.arg("--no-defaults");
        command.arg(format!("--datadir={}", self.data().display()));
        command.args([
            "--auth-root-authentication-method=normal",
            "--skip-test-db",
            "--skip-name-resolve",
        ]);
        output_of(&mut command, "");
    }

    fn configuration(&self, port: u16, options: Options<'_>) -> String {
        let dir = self.server.dir().display();
        // Asynchronous I/O draws on a limit that all servers of the machine share.
        let mut text = format!(
            "[mysqld]\ndatadir={}\nsocket={dir}/{SOCKET}\npid-file={dir}/pid\n\
             bind-address=127.0.0.1\nport={port}\nskip-name-resolve\n\
             max_connections=300\nmax_connect_errors=1000000\n\
             innodb_buffer_pool_size=64M\ninnodb_use_native_aio=0\n",
            self.data().display()
        );
        if !options.fsync {
            // 2, not 0: a commit must survive kill -9 of the server.
            text.push_str("innodb_flush_log_at_trx_commit=2\ninnodb_flush_method=nosync\n");
        }
        for line in options.extra {
            text.push_str(line);
            text.push('\n');
        }
        text
    }

    fn data(&self) -> PathBuf {
        self.server.dir().join("data")
    }

    /// The URL of a database that exists from the start.
    pub fn url(&self) -> String {
        self.url_of("leasehold")
    }

    pub fn url_of(&self, database: &str) -> String {
        let MariaDb {
            server, password, ..
        } = self;
        format!(
            "mysql://leasehold:{password}@{}/{database}",
            server.address()
        )
    }

    /// The URL of the same database through the Unix socket.
    pub fn socket_url_of(&self, database: &str) -> String {
        let dir = self.server.dir().display();
        let password = &self.password;
        format!("mysql://leasehold:{password}@localhost/{database}?unix_socket={dir}/{SOCKET}")
    }

    /// Makes an empty database and returns its URL.
    pub fn fresh_database(&self) -> String {
        let name = self.server.next_database();
        self.exec(&format!("CREATE DATABASE {name} CHARACTER SET utf8mb4"));
        self.url_of(&name)
    }

    /// Runs SQL as root; returns the rows, fields separated by tabs.
    #[track_caller]
    pub fn exec(&self, sql: &str) -> String {
        self.exec_in("mysql", sql)
    }

    #[track_caller]
    pub fn exec_in(&self, database: &str, sql: &str) -> String {
        let mut command = self.server.command(&self.client);
        let socket = self.server.dir().join(SOCKET);
        command
            .args(["--no-defaults", "--batch", "--skip-column-names"])
            .arg("--default-character-set=utf8mb4")
            .arg(format!("--socket={}", socket.display()))
            .args(["--user=root", database]);
        output_of(&mut command, sql).trim_end().to_owned()
    }

    /// Ends every client session, as an administrator or a failover would; returns how many there were.
    pub fn terminate_all_sessions(&self) -> usize {
        let sessions = self.exec(
            "SELECT id FROM information_schema.processlist
             WHERE id <> connection_id() AND user = 'leasehold'",
        );
        // One that ends by itself meanwhile is no error.
        let kills = sessions.lines().map(|id| {
            format!(
                "BEGIN NOT ATOMIC DECLARE CONTINUE HANDLER FOR 1094 BEGIN END; KILL {id}; END//\n"
            )
        });
        self.exec(&format!("DELIMITER //\n{}", kills.collect::<String>()));
        sessions.lines().count()
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

    /// kill -9; commits survive.
    pub fn kill(&self) {
        self.server.kill();
    }
}

/// Whether the server greets: 10 is the version of its protocol, where an error would have 255.
fn ready(dir: &Path, _: Pid) -> bool {
    let greet = || -> std::io::Result<u8> {
        let mut stream = UnixStream::connect(dir.join(SOCKET))?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        let mut head = [0; 5];
        stream.read_exact(&mut head)?;
        Ok(head[4])
    };
    greet().is_ok_and(|version| version == 10)
}
