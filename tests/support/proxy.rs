//! A network that fails on command, between a client and a server.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::{free_port, wait_until};

// How soon a change of mode reaches a connection on which nothing moves.
const TICK: Duration = Duration::from_millis(10);

#[derive(Clone, Copy, PartialEq)]
enum Mode {
    Pass,
    DelayReplies(Duration),
    Dark,
    Cut,
}

/// A TCP proxy on a port of its own. Dropped: all connections are reset, all threads end.
pub struct Proxy {
    port: u16,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

struct Shared {
    upstream: SocketAddr,
    mode: RwLock<Mode>,
    listener: Mutex<Option<TcpListener>>,
    ended: AtomicBool,
    accepted: AtomicUsize,
    open: AtomicUsize,
}

impl Proxy {
    pub fn start(upstream: SocketAddr) -> Proxy {
        let port = free_port();
        let shared = Arc::new(Shared {
            upstream,
            mode: RwLock::new(Mode::Pass),
            listener: Mutex::new(Some(listen(port))),
            ended: AtomicBool::new(false),
            accepted: AtomicUsize::new(0),
            open: AtomicUsize::new(0),
        });
        let acceptor = thread::spawn({
            let shared = Arc::clone(&shared);
            move || accept(&shared)
        });
        Proxy {
            port,
            shared,
            acceptor: Some(acceptor),
        }
    }

    /// A proxy in front of the server of a URL, and the URL that leads through it.
    pub fn in_front_of(url: &str) -> (Proxy, String) {
        let (head, rest) = url.split_once('@').expect("a user in the URL");
        let (address, path) = rest.split_once('/').expect("a database in the URL");
        let proxy = Proxy::start(address.parse().expect("an address with a port"));
        let through = format!("{head}@127.0.0.1:{}/{path}", proxy.port);
        (proxy, through)
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Passes everything on, again; what was held back in the dark goes first.
    pub fn heal(&self) {
        let mut listener = lock(&self.shared.listener);
        listener.get_or_insert_with(|| listen(self.port));
        self.set(Mode::Pass);
    }

    /// Holds every reply of the server back for so long; requests pass at once. A delay that never ends, followed by
    /// [`cut`](Self::cut), loses the reply to a request that was carried out.
    pub fn delay_replies(&self, delay: Duration) {
        self.set(Mode::DelayReplies(delay));
    }

    /// From now on no byte passes, either way, and nobody is told: connections stay open, also new ones.
    pub fn go_dark(&self) {
        self.set(Mode::Dark);
    }

    /// Resets all connections, drops what they held back, and refuses new ones. Returns when that is done.
    pub fn cut(&self) {
        self.set(Mode::Cut);
        *lock(&self.shared.listener) = None;
        let what = "all connections are cut";
        wait_until(Duration::from_secs(10), what, || self.open() == 0);
    }

    /// Connections accepted since the start.
    pub fn accepted(&self) -> usize {
        self.shared.accepted.load(SeqCst)
    }

    /// Connections open now.
    pub fn open(&self) -> usize {
        self.shared.open.load(SeqCst)
    }

    fn set(&self, mode: Mode) {
        *self
            .shared
            .mode
            .write()
            .unwrap_or_else(PoisonError::into_inner) = mode;
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.ended.store(true, SeqCst);
        *lock(&self.shared.listener) = None;
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
        super::becomes_true(Duration::from_secs(10), || self.open() == 0);
    }
}

impl Shared {
    /// Held while bytes are written, so that none slips through after a change of mode.
    fn mode(&self) -> RwLockReadGuard<'_, Mode> {
        self.mode.read().unwrap_or_else(PoisonError::into_inner)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn listen(port: u16) -> TcpListener {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).expect("our own port");
    listener.set_nonblocking(true).expect("nonblocking");
    listener
}

fn accept(shared: &Arc<Shared>) {
    while !shared.ended.load(SeqCst) {
        // Counted under the lock: `cut`, which takes it, then waits for this connection too.
        let client = {
            let listener = lock(&shared.listener);
            let dark = *shared.mode() == Mode::Dark;
            let client = listener.as_ref().filter(|_| !dark);
            let client = client.and_then(|listener| listener.accept().ok());
            client.map(|(stream, _)| {
                shared.accepted.fetch_add(1, SeqCst);
                shared.open.fetch_add(1, SeqCst);
                stream
            })
        };
        let Some(client) = client else {
            thread::sleep(Duration::from_millis(2));
            continue;
        };
        let shared = Arc::clone(shared);
        thread::spawn(move || {
            let _ = connect(&shared, client);
            shared.open.fetch_sub(1, SeqCst);
        });
    }
}

/// One connection, to its end.
fn connect(shared: &Shared, client: TcpStream) -> io::Result<()> {
    let server = TcpStream::connect(shared.upstream)?;
    for stream in [&client, &server] {
        stream.set_nonblocking(false)?;
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(TICK))?;
    }
    let broken = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| pump(shared, &broken, &client, &server, false));
        pump(shared, &broken, &server, &client, true);
    });
    if broken.into_inner() {
        // Closing then sends a reset, not an orderly end.
        for stream in [&client, &server] {
            rustix::net::sockopt::set_socket_linger(stream, Some(Duration::ZERO))?;
        }
    }
    Ok(())
}

fn pump(shared: &Shared, broken: &AtomicBool, from: &TcpStream, to: &TcpStream, replies: bool) {
    if carry(shared, broken, from, to, replies).is_err() {
        broken.store(true, SeqCst);
    }
}

/// Carries bytes one way, in order, each not before its time, until the sender ends or the connection breaks.
fn carry(
    shared: &Shared,
    broken: &AtomicBool,
    mut from: &TcpStream,
    mut to: &TcpStream,
    replies: bool,
) -> io::Result<()> {
    let mut queue: VecDeque<(Instant, Vec<u8>)> = VecDeque::new();
    let mut buffer = vec![0; 64 * 1024];
    let mut finished = false;
    loop {
        let mode = shared.mode();
        let cut = *mode == Mode::Cut || shared.ended.load(SeqCst) || broken.load(SeqCst);
        if cut {
            return Err(ErrorKind::ConnectionReset.into());
        }
        if *mode == Mode::Dark {
            drop(mode);
            thread::sleep(TICK);
            continue;
        }
        let delay = match *mode {
            Mode::DelayReplies(delay) if replies => delay,
            _ => Duration::ZERO,
        };
        let mut wait = TICK;
        while let Some((arrived, bytes)) = queue.front_mut() {
            let early = delay.saturating_sub(arrived.elapsed());
            if !early.is_zero() {
                wait = early.clamp(Duration::from_millis(1), TICK);
                break;
            }
            let written = unless_idle(to.write(bytes))?.unwrap_or(0);
            bytes.drain(..written);
            if !bytes.is_empty() {
                break;
            }
            queue.pop_front();
        }
        drop(mode);
        if finished && queue.is_empty() {
            return to.shutdown(Shutdown::Write);
        }
        if finished {
            thread::sleep(wait);
            continue;
        }
        from.set_read_timeout(Some(wait))?;
        match unless_idle(from.read(&mut buffer))? {
            Some(0) => finished = true,
            Some(count) => queue.push_back((Instant::now(), buffer[..count].to_vec())),
            None => {}
        }
    }
}

fn unless_idle(result: io::Result<usize>) -> io::Result<Option<usize>> {
    match result {
        Ok(count) => Ok(Some(count)),
        Err(error)
            if matches!(
                error.kind(),
                ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
            ) =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}
