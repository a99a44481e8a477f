//! Limits by the names that operators type.

use limiter_common::limit::Limit;

use super::{error::PolicyError, nearest::nearest, units::quoted};

/// The limit of this name.
///
/// # Errors
/// [`PolicyError::UnknownLimit`], with the limit that was probably meant.
pub fn limit_by_name(name: &str) -> Result<Limit, PolicyError> {
    Limit::ALL.into_iter().find(|limit| limit.name() == name).ok_or_else(|| {
        PolicyError::UnknownLimit {
            name: quoted(name),
            nearest: nearest(name, Limit::ALL.map(Limit::name)),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::error::PolicyErrorKind;

    #[test]
    fn every_limit_has_its_name() {
        for limit in Limit::ALL {
            assert_eq!(limit_by_name(limit.name()), Ok(limit));
        }
    }

    #[test]
    fn an_unknown_name_gets_the_nearest() {
        let error = limit_by_name("sorce").unwrap_err();
        assert_eq!(error.kind(), PolicyErrorKind::NotFound);
        assert_eq!(error.to_string(), "there is no limit \"sorce\"");
        assert_eq!(error.remedy().unwrap(), "did you mean source?");

        let error = limit_by_name("bandwidth\x1b[2J").unwrap_err();
        assert_eq!(error.to_string(), "there is no limit \"bandwidth\\u{1b}[2J\"");
        assert_eq!(error.remedy().unwrap(), "the limits are connection, syn, source");
    }
}
