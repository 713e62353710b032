use diesel::r2d2::{ConnectionManager, PooledConnection, R2D2Connection};

use super::migrate::Migrate;
use super::store::Store;

/// A diesel connection on which an election can be held.
///
/// Implemented for `PgConnection`, `MysqlConnection` and `SqliteConnection`, each with the feature
/// of its name, and for diesel's pooled connections of them. It cannot be implemented elsewhere.
pub trait ElectionConnection: diesel::Connection + sealed::Connection {}

impl<C: diesel::Connection + sealed::Connection> ElectionConnection for C {}

pub(crate) mod sealed {
    use super::*;

    pub trait Connection {
        type Raw: Store + Migratable;

        fn raw(&mut self) -> &mut Self::Raw;
    }

    /// What migrating needs of a connection, in a form that generic code can ask for.
    pub trait Migratable {
        fn migrate(&mut self) -> Result<(), crate::election::ElectionError>;
    }

    macro_rules! connection {
        ($($Connection:ty),*) => {$(
            impl Connection for $Connection {
                type Raw = Self;

                fn raw(&mut self) -> &mut Self {
                    self
                }
            }

            impl Migratable for $Connection {
                fn migrate(&mut self) -> Result<(), crate::election::ElectionError> {
                    crate::election::migrate::migrate(self)
                }
            }
        )*};
    }

    #[cfg(feature = "postgres")]
    connection!(diesel::pg::PgConnection);
    #[cfg(feature = "mysql")]
    connection!(diesel::mysql::MysqlConnection);
    #[cfg(feature = "sqlite")]
    connection!(diesel::sqlite::SqliteConnection);

    impl<C> Connection for PooledConnection<ConnectionManager<C>>
    where
        C: Store + Migrate + Migratable + R2D2Connection + 'static,
    {
        type Raw = C;

        fn raw(&mut self) -> &mut C {
            self
        }
    }
}
