//! The standing of a source under the policy, in a word or two.

use std::time::Duration;

use crate::{
    output::{number::duration, table::Cell, tone::Tone},
    query::{
        lists::Until,
        source::{Brief, BriefLimit},
    },
};

/// The standing of a source. The first variant that applies counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// On a list, or blocked: `allowed`, `denied` or `blocked`, and for how long.
    Listed(&'static str, Until),
    /// Over a limit: its next packet would be refused.
    Over {
        /// The name of the limit.
        limit: String,
        /// Whether the limit is enforced.
        enforced: bool,
    },
    /// Within all limits, as far as the source alone tells.
    Within {
        /// The name of the fullest limit, and the part used, in percent.
        fullest: Option<(String, u64)>,
        /// The name of an enforced limit whose key has more than the source.
        by_more: Option<String>,
    },
}

/// From this part on, in percent, a limit may be the cause of drops.
const NEARLY_FULL: u64 = 90;

impl From<&Brief> for Standing {
    fn from(brief: &Brief) -> Self {
        let lists = &brief.lists;
        let penalty = lists.penalty.as_ref().map(|block| block.until);
        for (word, until) in [
            ("allowed", lists.allowed),
            ("denied", lists.denied),
            ("blocked", lists.blocked.or(penalty)),
        ] {
            if let Some(until) = until {
                return Self::Listed(word, until);
            }
        }
        // An enforced limit goes before one that only monitors.
        let over = |it: &&BriefLimit| it.fill.is_some_and(|fill| fill.next != Some(Duration::ZERO));
        if let Some(it) = brief.limits.iter().filter(over).max_by_key(|it| it.enforced) {
            return Self::Over { limit: it.name.clone(), enforced: it.enforced };
        }
        let fills = brief.limits.iter().filter_map(|it| Some((it.fill?.percent(), &it.name)));
        let fullest = fills.max_by_key(|(percent, _)| *percent);
        let by_more = brief.limits.iter().find(|it| it.enforced && it.fill.is_none());
        Self::Within {
            fullest: fullest.map(|(percent, limit)| (limit.clone(), percent)),
            by_more: by_more.map(|it| it.name.clone()),
        }
    }
}

impl Standing {
    /// The standing of a source with drops. A limit may have room between two drops, and the state
    /// of a keyed limit is not known. So an enforced keyed limit, or a limit that is nearly full,
    /// counts as exceeded.
    #[must_use]
    pub fn while_dropped(self) -> Self {
        let Self::Within { fullest, by_more } = &self else { return self };
        let full = fullest.as_ref().filter(|(_, percent)| *percent >= NEARLY_FULL);
        match full.map(|(limit, _)| limit).or(by_more.as_ref()) {
            Some(limit) => Self::Over { limit: limit.clone(), enforced: true },
            None => self,
        }
    }

    /// The words for the standing.
    pub fn cell(&self) -> Cell {
        match self {
            Self::Listed(word, until) => {
                let tone = if *word == "allowed" { Tone::Passed } else { Tone::Dropped };
                let left = match until {
                    Until::Forever => String::new(),
                    Until::For(left) => format!(" {}", duration(whole(*left))),
                };
                Cell::new(format!("{word}{left}"), tone)
            }
            Self::Over { limit, enforced: true } => {
                Cell::new(format!("over {limit}"), Tone::Dropped)
            }
            Self::Over { limit, .. } => Cell::new(format!("monitor: {limit}"), Tone::Strong),
            Self::Within { fullest: Some((limit, percent)), .. } => {
                format!("{limit} {percent}%").into()
            }
            Self::Within { fullest: None, .. } => Cell::default(),
        }
    }
}

/// Rounds a duration up to whole seconds.
const fn whole(time: Duration) -> Duration {
    Duration::from_secs(time.as_secs().saturating_add((time.subsec_nanos() > 0) as u64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::query::{
        Fill,
        lists::{Block, Lists},
    };

    fn limit(name: &str, enforced: bool, used: u64, wait: u64) -> BriefLimit {
        let next = Some(Duration::from_millis(wait));
        let fill = Fill { most: 200, used, next, full: Duration::ZERO };
        BriefLimit { name: name.into(), enforced, fill: Some(fill) }
    }

    fn told(lists: Lists, limits: &[BriefLimit]) -> String {
        let cell = Standing::from(&Brief { lists, limits: limits.to_vec() }).cell();
        format!("{} {:?}", cell.text, cell.tone)
    }

    #[test]
    fn what_is_dropped_is_over_a_limit() {
        let connection = BriefLimit { fill: None, ..limit("connection", true, 0, 0) };
        let told = |limits: &[BriefLimit]| {
            let brief = Brief { lists: Lists::default(), limits: limits.to_vec() };
            Standing::from(&brief).while_dropped().cell().text
        };
        let [low, high] = [40, 190].map(|used| limit("source", true, used, 0));
        assert_eq!(told(&[connection.clone(), low.clone()]), "over connection");
        assert_eq!(told(&[connection.clone(), high]), "over source");
        assert_eq!(told(&[connection]), "over connection");
        assert_eq!(told(&[low]), "source 20%");
        assert_eq!(told(&[]), "");
    }

    #[test]
    fn what_decides_is_told() {
        let none = Lists::default;
        assert_eq!(told(none(), &[]), " Plain");
        let (syn, source) = (limit("syn", true, 20, 0), limit("source", true, 84, 0));
        assert_eq!(told(none(), &[syn.clone(), source.clone()]), "source 42% Plain");
        let tried = limit("web", false, 200, 5);
        assert_eq!(told(none(), &[syn.clone(), tried.clone()]), "monitor: web Strong");
        let over = [limit("source", true, 200, 5)];
        assert_eq!(told(none(), &[syn, over[0].clone(), tried]), "over source Dropped");
        let until = Until::For(Duration::from_millis(40_100));
        let block = Block { until, pushed: false, limit: None, blocks: 1 };
        let lists = Lists { penalty: Some(block), ..none() };
        assert_eq!(told(lists.clone(), &over), "blocked 41s Dropped");
        let lists = Lists { denied: Some(Until::Forever), ..lists };
        assert_eq!(told(lists.clone(), &over), "denied Dropped");
        let lists = Lists { allowed: Some(until), ..lists };
        assert_eq!(told(lists, &over), "allowed 41s Passed");
    }
}
