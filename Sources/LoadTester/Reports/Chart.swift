/// A picture of a report.
struct Chart: Sendable {
    struct Series: Sendable {
        var name: String
        var points: [Point]
    }

    struct Point: Sendable {
        var x: Double
        var y: Double
    }

    enum Style: Sendable {
        case lines
        case dots
    }

    enum Scale: Sendable {
        case linear
        case logarithmic
        /// Shares below one; each unit of length is another nine: 0.9, 0.99, 0.999.
        case nines
    }

    var title: String
    var horizontal: String
    var vertical: String
    var style: Style
    var horizontalScale = Scale.linear
    var verticalScale = Scale.linear
    var series: [Series]

    static func percentiles(
        title: String, _ curves: [(name: String, curve: [(share: Double, microseconds: Double)])]
    ) -> Chart {
        Chart(
            title: title, horizontal: "percentile", vertical: "µs", style: .lines, horizontalScale: .nines,
            verticalScale: .logarithmic,
            series: curves.map { curve in
                Series(name: curve.name, points: curve.curve.map { Point(x: $0.share, y: $0.microseconds) })
            })
    }

    static func dots(
        title: String, horizontal: String, vertical: String, _ points: [(Double, Double)]
    ) -> Chart {
        Chart(
            title: title, horizontal: horizontal, vertical: vertical, style: .dots, verticalScale: .logarithmic,
            series: [Series(name: "", points: points.map { Point(x: $0.0, y: $0.1) })])
    }
}
