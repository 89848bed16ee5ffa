/// A chart as scalable graphics. Colours come from the page's style, so that they follow light and dark.
struct SVG {
    private let chart: Chart
    private let horizontal: Axis
    private let vertical: Axis

    private static let width = 800.0
    private static let height = 340.0
    private static let left = 68.0
    /// Half of the longest label of the last line, "99.999 %", and a margin.
    private static let right = 36.0
    private static let top = 34.0
    private static let bottom = 46.0

    /// More points in a line make a page slow to load.
    private static let mostInLine = 1_000

    init(_ chart: Chart) {
        var chart = chart
        for index in chart.series.indices {
            // Values that were not measured have no point.
            chart.series[index].points.removeAll { !$0.x.isFinite || !$0.y.isFinite }
        }
        self.chart = chart
        let points = chart.series.flatMap(\.points)
        horizontal = Axis(chart.horizontalScale, points.map(\.x))
        vertical = Axis(chart.verticalScale, points.map(\.y))
    }

    /// The chart with a heading, and a description for screen readers.
    var figure: String {
        """
        <figure>
        <h2>\(escaped(chart.title))</h2>
        <svg viewBox="0 0 \(Int(Self.width)) \(Int(Self.height))" role="img" aria-label="\(escaped(description))">
        \(grid)
        \(chart.series.enumerated().map { drawing($0.element, $0.offset) }.joined(separator: "\n"))
        \(legend)
        </svg>
        </figure>
        """
    }

    private var description: String {
        let names = chart.series.map(\.name).filter { !$0.isEmpty }.joined(separator: " and ")
        return
            "\(chart.title): \(chart.vertical) against \(chart.horizontal)\(names.isEmpty ? "" : ", \(names)")"
    }

    private func x(_ value: Double) -> Double {
        Self.left + horizontal.place(value) * (Self.width - Self.left - Self.right)
    }

    private func y(_ value: Double) -> Double {
        Self.height - Self.bottom - vertical.place(value) * (Self.height - Self.top - Self.bottom)
    }

    private func coordinate(_ value: Double) -> String { LoadTester.figure(value) }

    private var grid: String {
        let (floor, ceiling) = (Self.height - Self.bottom, Self.top)
        var parts = vertical.ticks.map { tick in
            let place = coordinate(y(tick.value))
            return "<line class=\"grid\" x1=\"\(Int(Self.left))\" x2=\"\(Int(Self.width - Self.right))\" "
                + "y1=\"\(place)\" y2=\"\(place)\"/><text x=\"\(Int(Self.left) - 8)\" y=\"\(place)\" "
                + "text-anchor=\"end\" dominant-baseline=\"middle\">\(escaped(tick.label))</text>"
        }
        parts += horizontal.ticks.map { tick in
            let place = coordinate(x(tick.value))
            return "<line class=\"grid\" x1=\"\(place)\" x2=\"\(place)\" y1=\"\(Int(ceiling))\" "
                + "y2=\"\(Int(floor))\"/><text x=\"\(place)\" y=\"\(Int(floor) + 18)\" "
                + "text-anchor=\"middle\">\(escaped(tick.label))</text>"
        }
        let middle = coordinate((Self.left + Self.width - Self.right) / 2)
        parts.append(
            "<text x=\"\(middle)\" y=\"\(Int(Self.height) - 8)\" text-anchor=\"middle\">"
                + "\(escaped(chart.horizontal))</text>")
        parts.append("<text x=\"8\" y=\"16\">\(escaped(chart.vertical))</text>")
        return parts.joined(separator: "\n")
    }

    private func drawing(_ series: Chart.Series, _ index: Int) -> String {
        switch chart.style {
        case .lines:
            let points = Self.thinned(series.points).map { "\(coordinate(x($0.x))),\(coordinate(y($0.y)))" }
            return
                "<polyline class=\"series s\(index % 2 + 1)\" points=\"\(points.joined(separator: " "))\"/>"
        case .dots:
            return series.points.map {
                "<circle class=\"dot\" cx=\"\(coordinate(x($0.x)))\" cy=\"\(coordinate(y($0.y)))\" r=\"2\"/>"
            }.joined()
        }
    }

    /// Every n-th point, and the last.
    private static func thinned(_ points: [Chart.Point]) -> [Chart.Point] {
        let step = (points.count + mostInLine - 1) / mostInLine
        guard step > 1 else { return points }
        return stride(from: 0, to: points.count - 1, by: step).map { points[$0] } + points.suffix(1)
    }

    private var legend: String {
        let named = chart.series.enumerated().filter { !$0.element.name.isEmpty }
        guard named.count > 1 else { return "" }
        return named.map { index, series in
            let start = Self.width - Self.right - Double(named.count - index) * 130
            return "<line class=\"series s\(index % 2 + 1)\" x1=\"\(Int(start))\" x2=\"\(Int(start) + 28)\" "
                + "y1=\"12\" y2=\"12\"/><text class=\"key\" x=\"\(Int(start) + 36)\" y=\"12\" "
                + "dominant-baseline=\"middle\">\(escaped(series.name))</text>"
        }.joined(separator: "\n")
    }
}
