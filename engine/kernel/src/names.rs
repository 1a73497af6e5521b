//! Where the C library looks up names of users and hosts.
//!
//! glibc reads `/etc/nsswitch.conf` and loads a library for each service that it names. In a static
//! program these come with a whole second C library, of the machine's version rather than the one
//! that the program was linked with, which ends in crashes or in nothing found. A static Osmos asks
//! the two services that are part of itself: the files of `/etc`, and DNS.

/// Settles it. Before any thread is started, and before the first name is looked up.
pub fn settle() {
    #[cfg(all(target_env = "gnu", target_feature = "crt-static"))]
    for (database, services) in [(c"passwd", c"files"), (c"hosts", c"files dns")] {
        // SAFETY: both are strings that live for ever; the library keeps a copy of its own.
        let status = unsafe { __nss_configure_lookup(database.as_ptr(), services.as_ptr()) };
        // It refuses databases and services that it does not know, which is a fault of this file.
        assert_eq!(status, 0, "{database:?} cannot be looked up in {services:?}");
    }
}

#[cfg(all(target_env = "gnu", target_feature = "crt-static"))]
// SAFETY: as declared in nss.h.
unsafe extern "C" {
    fn __nss_configure_lookup(
        database: *const libc::c_char,
        services: *const libc::c_char,
    ) -> libc::c_int;
}
