//! The rules for alerts and the dashboard of the documents: they parse, and name metrics that there are.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use daemon::metrics::metrics;
use integration_tests::prometheus::promtool;
use serde_json::{Value, json};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Panics if an expression has a metric of ours that there is not.
#[track_caller]
fn check_names(expression: &str) {
    let known: BTreeSet<String> = metrics().into_iter().map(|metric| metric.name).collect();
    let words = expression.split(|of: char| !of.is_ascii_alphanumeric() && of != '_' && of != ':');
    let named: Vec<&str> =
        words.filter(|word| word.starts_with("tracer_agent_") || word.starts_with("process_")).collect();
    for name in named {
        assert!(known.contains(name), "there is no metric {name}: {expression}");
    }
}

#[test]
fn alerts_fire_when_they_should() {
    let dir = tempfile::tempdir().unwrap();
    let rules = fs::read_to_string(root().join("docs/prometheus-alerts.yml")).unwrap();
    let lines = rules.lines().filter(|line| !line.trim_start().starts_with(['#', 's', 'd']));
    lines.for_each(check_names);
    let documents = fs::read_to_string(root().join("docs/metrics.md")).unwrap();
    let alerts: Vec<&str> = rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    assert!(alerts.len() > 5, "{alerts:?}");
    for alert in alerts {
        assert!(documents.contains(&format!("\n| `{alert}` | ")), "docs/metrics.md does not explain {alert}");
    }
    fs::write(dir.path().join("prometheus-alerts.yml"), rules).unwrap();
    let tests = root().join("tests/monitoring/prometheus-alerts.test.yml");
    fs::copy(tests, dir.path().join("tests.yml")).unwrap();
    promtool(dir.path(), &["check", "rules", "prometheus-alerts.yml"]).expect(0);
    promtool(dir.path(), &["test", "rules", "tests.yml"]).expect(0);
}

#[test]
fn the_dashboard_asks_for_metrics_that_there_are() {
    let text = fs::read_to_string(root().join("docs/grafana-dashboard.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&text).unwrap();
    // The oldest of Grafana 10.
    assert!(dashboard["schemaVersion"].as_u64().unwrap() >= 38, "{}", dashboard["schemaVersion"]);
    assert!(dashboard["id"].is_null(), "an import that names an id replaces another dashboard");
    let variables = dashboard["templating"]["list"].as_array().unwrap();
    let of_datasource = variables.iter().find(|variable| variable["name"] == "datasource").unwrap();
    assert_eq!(
        (&of_datasource["type"], &of_datasource["query"]),
        (&json!("datasource"), &json!("prometheus"))
    );
    variables.iter().filter_map(|variable| variable["definition"].as_str()).for_each(check_names);
    let (mut ids, mut places, mut rules) = (BTreeSet::new(), BTreeSet::new(), Vec::new());
    for panel in dashboard["panels"].as_array().unwrap() {
        let title = panel["title"].as_str().unwrap();
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "two panels have the id of {title}");
        let [x, y, w, h] = ["x", "y", "w", "h"].map(|key| panel["gridPos"][key].as_u64().unwrap());
        assert!(x + w <= 24, "{title} is wider than the grid of 24 columns");
        for place in (x..x + w).flat_map(|x| (y..y + h).map(move |y| (x, y))) {
            assert!(places.insert(place), "{title} is in the place of another panel");
        }
        if panel["type"] == "row" {
            continue;
        }
        let (mut letters, targets) = (BTreeSet::new(), panel["targets"].as_array().unwrap());
        assert!(!targets.is_empty(), "{title}");
        for target in targets {
            assert!(letters.insert(target["refId"].as_str().unwrap()), "{title}");
            assert_eq!(target["datasource"]["uid"], "${datasource}", "{title}");
            let expression = target["expr"].as_str().unwrap();
            check_names(expression);
            let expression = expression.replace("$__rate_interval", "5m");
            rules.push(json!({"record": format!("panel:{}", rules.len()), "expr": expression}));
        }
    }
    assert!(rules.len() > 15);
    // Prometheus' own parser takes the expressions, as those of rules.
    let dir = tempfile::tempdir().unwrap();
    let rules = json!({"groups": [{"name": "dashboard", "rules": rules}]});
    fs::write(dir.path().join("rules.yml"), rules.to_string()).unwrap();
    promtool(dir.path(), &["check", "rules", "rules.yml"]).expect(0);
}
