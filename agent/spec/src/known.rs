//! What is known of a rule beside what it says.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

/// What the maker of a rule knows of its file, for the planner in the same process: the path may lead to
/// another file by then, or to none. It is no part of the rule as data: it is not written, and rules that
/// differ in it alone are equal.
#[derive(Clone, Default)]
pub struct Known(Option<Arc<dyn Any + Send + Sync>>);

impl Known {
    /// This, which whoever plans the rule has to know the type of.
    pub fn new<T: Any + Send + Sync>(of: Arc<T>) -> Self {
        Self(Some(of))
    }

    /// What is known, if it is of this type.
    pub fn get<T: Any>(&self) -> Option<&T> {
        self.0.as_deref()?.downcast_ref()
    }
}

impl PartialEq for Known {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Known {}

impl fmt::Debug for Known {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(if self.0.is_some() { "Known" } else { "Unknown" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{RuleSpec, What};

    #[test]
    fn a_rule_is_the_same_whatever_is_known_of_its_file() {
        let rule = RuleSpec::new(What::Usdt("/bin/a:app:one".to_owned()));
        let known = RuleSpec { known: Known::new(Arc::new(7_u32)), ..rule.clone() };
        assert_eq!((known.known.get::<u32>(), known.known.get::<u8>()), (Some(&7), None));
        assert_eq!(known, rule);
        let text = serde_json::to_string(&known).unwrap();
        assert_eq!(text, serde_json::to_string(&rule).unwrap());
        assert_eq!(serde_json::from_str::<RuleSpec>(&text).unwrap().known.get::<u32>(), None);
    }
}
