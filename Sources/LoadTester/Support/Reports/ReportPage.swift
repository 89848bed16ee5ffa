import Glibc
import Presentation

/// The report as one self-contained HTML file: text, tables and pictures, light or dark as the reader
/// prefers.
struct ReportPage {
    private let results: any Reportable

    init(_ results: any Reportable) {
        self.results = results
    }

    /// Returns the path of the file.
    func write(into directory: String) throws(LoadError) -> String {
        let path = "\(directory)/\(results.command).html"
        let descriptor = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0o644)
        guard descriptor >= 0 else { throw LoadError(failed: "open \(path)") }
        defer { close(descriptor) }
        try writeAll(html, to: descriptor, path)
        return path
    }

    /// Makes the directory and its parents, and checks that it can be written to.
    static func prepare(_ directory: String) throws(LoadError) {
        var path = directory.hasPrefix("/") ? "/" : ""
        for name in directory.split(separator: "/") {
            path += "\(name)/"
            if mkdir(path, 0o755) != 0, errno != EEXIST, access(path, F_OK) != 0 {
                throw LoadError(failed: "mkdir \(path)")
            }
        }
        var template = Array("\(directory)/.nightbell-load-XXXXXX".utf8CString)
        let descriptor = mkstemp(&template)
        guard descriptor >= 0 else { throw LoadError(failed: "write into \(directory)") }
        close(descriptor)
        unlink(template)
    }

    var html: String {
        """
        <!DOCTYPE html>
        <html lang="en">
        <head>
        <meta charset="utf-8">
        <meta name="viewport" content="width=device-width, initial-scale=1">
        <meta name="color-scheme" content="light dark">
        <title>nightbell-load \(escaped(results.command))</title>
        <style>
        \(Self.style)
        </style>
        </head>
        <body>
        <main>
        <h1>nightbell-load <em>\(escaped(results.command))</em></h1>
        <p class="machine">\(escaped(results.machine.line))</p>
        \(verdicts)
        \(results.charts.map { SVG($0).figure }.joined(separator: "\n"))
        \(results.tables.map(table).joined(separator: "\n"))
        <details><summary>The same as JSON</summary><pre>\(escaped(results.completeJSON.text))</pre></details>
        </main>
        </body>
        </html>

        """
    }

    private var verdicts: String {
        guard !results.verdicts.isEmpty else { return "" }
        let items = results.verdicts.map { verdict in
            "<li class=\"\(verdict.isMet ? "met" : "missed")\"><b>\(verdict.isMet ? "✓" : "✗") \(verdict.outcome)</b> "
                + "\(escaped(verdict.text))</li>"
        }
        return "<ul class=\"verdicts\">\(items.joined())</ul>"
    }

    private func table(_ table: ReportTable) -> String {
        let head = table.columns.map { "<th scope=\"col\">\(escaped($0))</th>" }.joined()
        let rows = table.rows.map { row in
            let cells = row.enumerated().map { index, cell in
                index == 0 ? "<th scope=\"row\">\(escaped(cell))</th>" : "<td>\(escaped(cell))</td>"
            }
            let missing = max(0, table.columns.count - row.count)
            return "<tr>\(cells.joined())\(String(repeating: "<td></td>", count: missing))</tr>"
        }
        let note = table.note.isEmpty ? "" : "<p class=\"note\">\(escaped(table.note))</p>"
        return """
            <section><h2>\(escaped(table.title))</h2>
            <table><thead><tr>\(head)</tr></thead><tbody>\(rows.joined())</tbody></table>\(note)</section>
            """
    }

    private static let style = """
        :root { --ground: #ffffff; --ink: #1d2530; --faint: #667080; --line: #d9dee5; --panel: #f6f8fa;
          --series1: #1f5fbf; --series2: #c2570c; --good: #1a7f4b; --bad: #b3261e; }
        @media (prefers-color-scheme: dark) {
          :root { --ground: #12161c; --ink: #e6eaf0; --faint: #98a2b0; --line: #303844; --panel: #1a2029;
            --series1: #7fb1ff; --series2: #ffab6b; --good: #6fd8a0; --bad: #ff8a80; }
        }
        * { box-sizing: border-box; }
        body { margin: 0; background: var(--ground); color: var(--ink);
          font: 16px/1.5 system-ui, sans-serif; }
        main { max-width: 880px; margin: 0 auto; padding: 2rem 1.25rem 4rem; }
        h1 { font-size: 1.6rem; margin: 0; } h1 em { font-style: normal; color: var(--series1); }
        h2 { font-size: 1.1rem; margin: 0 0 .5rem; }
        .machine, .note, figcaption { color: var(--faint); font-size: .875rem; }
        section, figure { margin: 1.75rem 0 0; }
        figure { background: var(--panel); border: 1px solid var(--line); border-radius: 8px; padding: 1rem;
          overflow-x: auto; }
        figure svg { width: 100%; min-width: 640px; height: auto; display: block; }
        table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
        th, td { padding: .35rem .75rem; border-bottom: 1px solid var(--line); text-align: right; }
        th:first-child { text-align: left; } thead th { color: var(--faint); font-weight: 600; }
        tbody th { font-weight: 400; }
        .verdicts { list-style: none; padding: 0; margin: 1.25rem 0 0; display: grid; gap: .25rem; }
        .met b { color: var(--good); } .missed b { color: var(--bad); }
        details { margin-top: 2rem; } pre { white-space: pre-wrap; overflow-wrap: anywhere; font-size: .8rem;
          background: var(--panel); padding: 1rem; border-radius: 8px; }
        svg text { fill: var(--faint); font: 12px system-ui, sans-serif; }
        svg .grid { stroke: var(--line); stroke-width: 1; }
        svg .series { fill: none; stroke-width: 2; stroke-linejoin: round; }
        svg .s1 { stroke: var(--series1); } svg .s2 { stroke: var(--series2); stroke-dasharray: 6 3; }
        svg .dot { fill: var(--series1); fill-opacity: .45; stroke: none; }
        svg .key { fill: var(--ink); }
        """
}

/// Writes all of the text, or throws the reason.
func writeAll(_ text: String, to descriptor: CInt, _ name: String) throws(LoadError) {
    var bytes = Array(text.utf8)[...]
    while !bytes.isEmpty {
        let written = bytes.withUnsafeBytes { Glibc.write(descriptor, $0.baseAddress, $0.count) }
        if written < 0, errno == EINTR { continue }
        guard written > 0 else { throw LoadError(failed: "write \(name)") }
        bytes = bytes.dropFirst(written)
    }
}

/// The text, escaped for HTML.
func escaped(_ text: String) -> String {
    var result = ""
    for character in text {
        switch character {
        case "<": result += "&lt;"
        case ">": result += "&gt;"
        case "&": result += "&amp;"
        case "\"": result += "&quot;"
        default: result.append(character)
        }
    }
    return result
}
