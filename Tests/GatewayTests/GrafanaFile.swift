import EdgeTestSupport
import Foundation
import ProgramTestSupport
import Testing

/// The dashboard for Grafana that comes with Nightbell, and what Prometheus makes of its queries.
struct GrafanaFile {
    /// In the order of the panels.
    let queries: [String]

    init() throws {
        let file = URL(fileURLWithPath: #filePath)
            .deletingLastPathComponent().deletingLastPathComponent().deletingLastPathComponent()
            .appendingPathComponent("docs/grafana/nightbell.json")
        let object = try JSONSerialization.jsonObject(with: try Data(contentsOf: file)) as? [String: Any]
        let panels = try #require(object?["panels"] as? [[String: Any]])
        queries = panels.flatMap { $0["targets"] as? [[String: Any]] ?? [] }.compactMap {
            $0["expr"] as? String
        }
    }

    /// The metrics that the queries name.
    var names: Set<String> {
        Set(queries.flatMap { $0.matches(of: /nightbell_[a-z_]+/).map { String($0.output) } })
    }

    /// Has promtool evaluate the queries with the time series of a page of metrics. In each minute counters grow by 60;
    /// all others are 1.
    ///
    /// - Parameter expected: values of further queries.
    func evaluated(with page: String, _ expected: [(query: String, value: Double)]) throws -> Program.Outcome
    {
        let directory = try TemporaryDirectory()
        let counters = page.matches(of: /# TYPE (\S+) (?:counter|histogram)/).map { String($0.output.1) }
        let series = page.split(separator: "\n").filter { !$0.hasPrefix("#") }.compactMap { line in
            line.lastIndex(of: " ").map { line[..<$0] }
        }
        let input = series.map { series in
            let parts = series.dropLast(series.hasSuffix("}") ? 1 : 0).split(separator: "{", maxSplits: 1)
            // As Prometheus stores what it has scraped.
            let labels = (parts.dropFirst().map(String.init) + [#"job="nightbell""#, #"instance="a:7480""#])
            let isCounter = counters.contains { parts[0].hasPrefix($0) }
            return [
                "series": "\(parts[0]){\(labels.joined(separator: ","))}",
                "values": isCounter ? "0+60x30" : "1+0x30",
            ]
        }
        // A query that matches nothing has no value at all.
        let all = queries.map { (query: "clamp(count(\($0)), 1, 1)", value: 1.0) } + expected
        let tests = all.map { query, value in
            [
                "expr": query, "eval_time": "20m",
                "exp_samples": [["labels": "{}", "value": value]],
            ] as [String: Any]
        }
        let document: [String: Any] = [
            "evaluation_interval": "1m",
            "tests": [["interval": "1m", "input_series": input, "promql_expr_test": tests]],
        ]
        // JSON is YAML, but for escaped slashes.
        let file = directory.file("tests.yaml")
        try JSONSerialization.data(withJSONObject: document, options: .withoutEscapingSlashes)
            .write(to: URL(fileURLWithPath: file))
        return try Program.run("/usr/bin/promtool", ["test", "rules", file])
    }
}
