//! Which file systems a lock can be trusted on.
//!
//! `flock` excludes the processes of one machine. On a file system that several machines mount, it may exclude only the local
//! ones, be turned into another kind of lock, or hang, depending on versions and mount options that a program cannot see.
//! FUSE is on the list because its `flock` is whatever the daemon behind it makes of it, and `sshfs` and the like hide there.
//! Plain local file systems, overlays of them, and memory file systems are not listed.

use std::os::fd::AsFd;

use rustix::io::Errno;

/// The usual name of the doubtful file system that `fd` lies on, if it lies on one.
#[cfg(any(target_os = "linux", target_os = "android"))]
#[allow(
    clippy::unnecessary_cast,
    reason = "the width differs between architectures"
)]
pub(super) fn doubtful(fd: impl AsFd) -> Result<Option<&'static str>, Errno> {
    rustix::fs::fstatfs(fd).map(|stat| name_of(stat.f_type as u32))
}

/// The usual name of the doubtful file system that `fd` lies on, if it lies on one.
#[cfg(target_vendor = "apple")]
pub(super) fn doubtful(fd: impl AsFd) -> Result<Option<&'static str>, Errno> {
    const MNT_LOCAL: u32 = 0x1000;
    rustix::fs::fstatfs(fd)
        .map(|stat| (stat.f_flags & MNT_LOCAL == 0).then_some("a remote file system"))
}

/// Elsewhere nothing is known about file systems, so none is refused.
#[cfg(not(any(target_os = "linux", target_os = "android", target_vendor = "apple")))]
pub(super) fn doubtful(_: impl AsFd) -> Result<Option<&'static str>, Errno> {
    Ok(None)
}

/// By the magic number of `statfs(2)`.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn name_of(magic: u32) -> Option<&'static str> {
    Some(match magic {
        0x0000_6969 => "NFS",
        0x0000_517B => "SMB",
        0xFF53_4D42 => "CIFS",
        0xFE53_4D42 => "SMB2",
        0x0000_564C => "NCP",
        0x5346_414F => "AFS",
        0x6B41_4653 => "kAFS",
        0x7375_7245 => "Coda",
        0x0102_1997 => "9P",
        0x00C3_6400 => "CephFS",
        0x0BD0_0BD0 => "Lustre",
        0x0116_1970 => "GFS2",
        0x7461_636F => "OCFS2",
        0x4750_4653 => "GPFS",
        0x1983_0326 => "BeeGFS",
        0x2003_0528 => "OrangeFS",
        0xAAD7_AAEA => "PanFS",
        0xBEEF_DEAD => "SNFS",
        0x786F_4256 => "a VirtualBox shared folder",
        0xBACB_ACBC => "a VMware shared folder",
        0x7C7C_6673 => "a Parallels shared folder",
        0x6573_5546 => "FUSE",
        _ => return None,
    })
}

#[cfg(all(test, any(target_os = "linux", target_os = "android")))]
mod tests {
    use super::*;

    #[test]
    fn file_systems_that_machines_share_are_doubtful() {
        assert_eq!(name_of(0x6969), Some("NFS"));
        assert_eq!(name_of(0xFE53_4D42), Some("SMB2"));
        assert_eq!(name_of(0x6573_5546), Some("FUSE"));
    }

    #[test]
    fn local_file_systems_are_not() {
        let [ext4, xfs, btrfs, tmpfs, overlay, zfs] = [
            0xEF53,
            0x5846_5342,
            0x9123_683E,
            0x0102_1994,
            0x794C_7630,
            0x2FC1_2FC1,
        ];
        for magic in [ext4, xfs, btrfs, tmpfs, overlay, zfs] {
            assert_eq!(name_of(magic), None, "{magic:#x}");
        }
    }

    #[test]
    fn the_number_of_a_real_directory_is_read() {
        let here = std::fs::File::open(std::env::temp_dir()).unwrap();
        doubtful(&here).unwrap();
    }
}
