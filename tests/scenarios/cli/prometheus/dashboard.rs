//! The dashboards, queried as Grafana does.

use std::{
    collections::{BTreeSet, HashSet},
    fs,
    path::Path,
};

use limiter_tests::prometheus::Prometheus;
use serde_json::Value;

/// The value of Grafana's `$__rate_interval` for a scrape each second, with a margin.
const RATE_INTERVAL: &str = "10s";

/// A Grafana dashboard.
pub(super) struct Dashboard(Value);

impl Dashboard {
    pub(super) fn read(path: &Path) -> Self {
        Self(serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap())
    }

    /// The queries of all variables, panels and annotations.
    pub(super) fn asked(&self) -> Vec<&str> {
        let variables = self.0["templating"]["list"].as_array().unwrap().iter();
        let variables = variables.map(|variable| &variable["query"]["query"]);
        variables.chain(self.expressions()).map(|query| query.as_str().unwrap()).collect()
    }

    /// The queries of all panels and annotations, with each variable replaced by a value that the server has;
    /// an error if there is none yet.
    pub(super) fn queries(&self, server: &Prometheus) -> Result<Vec<String>, String> {
        let mut variables = vec![("$__rate_interval".to_owned(), RATE_INTERVAL.to_owned())];
        for variable in self.0["templating"]["list"].as_array().unwrap() {
            let query = variable["query"]["query"].as_str().unwrap();
            let (selector, label) = query
                .strip_prefix("label_values(")
                .and_then(|query| query.strip_suffix(')')?.rsplit_once(", "))
                .ok_or_else(|| format!("a variable of another kind: {query}"))?;
            let series = server.ask("series", &[("match[]", &replaced(selector, &variables))]);
            let series = series.map_err(|error| format!("{query}: {error:#}"))?;
            let values: BTreeSet<&str> =
                series.as_array().unwrap().iter().filter_map(|one| one[label].as_str()).collect();
            if values.is_empty() {
                return Err(format!("{query} has no values"));
            }
            let values = values.into_iter().collect::<Vec<_>>().join("|");
            variables.push((format!("${}", variable["name"].as_str().unwrap()), values));
        }
        let queries = self.expressions();
        Ok(queries.map(|query| replaced(query.as_str().unwrap(), &variables)).collect())
    }

    fn expressions(&self) -> impl Iterator<Item = &Value> {
        let expressions = self.panels().flat_map(|panel| panel["targets"].as_array());
        let expressions = expressions.flatten().map(|target| &target["expr"]);
        let annotations = self.0["annotations"]["list"].as_array().unwrap().iter();
        let annotations = annotations.filter(|it| it["builtIn"] != 1).map(|it| &it["expr"]);
        expressions.chain(annotations)
    }

    fn panels(&self) -> impl Iterator<Item = &Value> {
        self.0["panels"].as_array().unwrap().iter()
    }
}

fn replaced(text: &str, variables: &[(String, String)]) -> String {
    let replace = |text: String, (name, value): &(String, String)| text.replace(name, value);
    let text = variables.iter().fold(text.to_owned(), replace);
    assert!(!text.contains('$'), "a variable that is not there: {text}");
    text
}

/// Any Grafana can import the dashboards, and panels have no gaps or overlaps.
#[test]
fn they_are_whole() {
    for name in [super::DASHBOARD, super::AGENT_DASHBOARD] {
        is_whole(&Dashboard::read(&super::shipped().join(name)));
    }
}

#[track_caller]
fn is_whole(dashboard: &Dashboard) {
    assert_eq!(dashboard.0["__inputs"][0]["name"], "DS_PROMETHEUS");
    assert_eq!(dashboard.0["id"], Value::Null);
    let (mut numbers, mut cells) = (HashSet::new(), HashSet::new());
    let mut bottom = 0;
    for panel in dashboard.panels() {
        let title = panel["title"].as_str().unwrap();
        assert!(numbers.insert(panel["id"].as_u64().unwrap()), "{title}: an id twice");
        let place = ["x", "y", "w", "h"].map(|name| panel["gridPos"][name].as_u64().unwrap());
        let [x, y, w, h] = place;
        assert!(x + w <= 24, "{title}: {place:?}");
        bottom = bottom.max(y + h);
        for cell in (x..x + w).flat_map(|x| (y..y + h).map(move |y| (x, y))) {
            assert!(cells.insert(cell), "{title} lies over another one at {cell:?}");
        }
        if panel["type"] == "row" {
            continue;
        }
        assert_eq!(panel["datasource"]["uid"], "${DS_PROMETHEUS}", "{title}");
        let unit = &panel["fieldConfig"]["defaults"]["unit"];
        assert!(unit.is_string() || panel["type"] == "table", "{title}: no unit");
        for target in panel["targets"].as_array().unwrap() {
            assert_eq!(target["datasource"]["uid"], "${DS_PROMETHEUS}", "{title}");
            let query = target["expr"].as_str().unwrap();
            assert!(query.contains("$job") && query.contains("$instance"), "{title}: {query}");
        }
    }
    assert_eq!(cells.len() as u64, 24 * bottom, "there are gaps");
}
