//! Whether this process is the one that started the threads it relies on.
//!
//! A forked child has a copy of all memory and none of the threads, so what a thread keeps true in
//! the parent goes stale in the child unseen.

#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(crate) use by_id::ProcessMark;
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(crate) use wiped::ProcessMark;

#[cfg(any(target_os = "linux", target_os = "android"))]
#[allow(unsafe_code)]
mod wiped {
    use std::ptr::{NonNull, null_mut};
    use std::sync::atomic::{AtomicU64, Ordering};

    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

    /// Memory that reads one in the process that made it, and zero in every child forked later, by
    /// the hand of the kernel (Linux 4.14). To ask costs one load; `getpid` is a system call.
    pub(crate) struct ProcessMark(Option<NonNull<AtomicU64>>);

    // SAFETY: what it points to is an atomic, and stays mapped for as long as the mark exists.
    unsafe impl Send for ProcessMark {}
    // SAFETY: as above.
    unsafe impl Sync for ProcessMark {}

    impl ProcessMark {
        pub(crate) fn new() -> ProcessMark {
            let length = rustix::param::page_size();
            let (access, private) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
            // SAFETY: a fresh mapping at an address of the kernel's choice is nobody else's. It is
            // aligned to a page and zeroed, so an atomic may live in it.
            let page = unsafe { mmap_anonymous(null_mut(), length, access, private) };
            let mark = ProcessMark(page.ok().and_then(|page| NonNull::new(page.cast())));
            if let Some(page) = mark.0 {
                // SAFETY: the mapping made above, in whole.
                let wiped =
                    unsafe { madvise(page.as_ptr().cast(), length, Advice::LinuxWipeOnFork) };
                // SAFETY: mapped, aligned, and an atomic from here on.
                unsafe { page.as_ref() }.store(u64::from(wiped.is_ok()), Ordering::Relaxed);
            }
            mark
        }

        /// Whether this process was forked from the one that made the mark. Where the kernel does
        /// not help, every process counts as one: no leadership is better than two.
        pub(crate) fn is_child(&self) -> bool {
            // SAFETY: mapped for as long as `self` exists.
            self.0
                .is_none_or(|page| unsafe { page.as_ref() }.load(Ordering::Relaxed) == 0)
        }
    }

    impl Drop for ProcessMark {
        fn drop(&mut self) {
            if let Some(page) = self.0 {
                // SAFETY: the mapping made in `new`, in whole, and nobody can reach it any more.
                let _ = unsafe { munmap(page.as_ptr().cast(), rustix::param::page_size()) };
            }
        }
    }
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
mod by_id {
    /// The process that made it.
    pub(crate) struct ProcessMark(u32);

    impl ProcessMark {
        pub(crate) fn new() -> ProcessMark {
            ProcessMark(std::process::id())
        }

        /// Whether this process is another than the one that made the mark.
        pub(crate) fn is_child(&self) -> bool {
            self.0 != std::process::id()
        }
    }
}
