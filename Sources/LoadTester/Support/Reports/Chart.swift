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

    var title: String
    var horizontal: String
    var vertical: String
    var style: Style
    var horizontalScale = Axis.Scale.linear
    var verticalScale = Axis.Scale.linear
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
        // More points make a page slow to scroll; every n-th shows as much.
        let step = max(1, points.count / 4_000)
        let shown = stride(from: 0, to: points.count, by: step).map {
            Point(x: points[$0].0, y: points[$0].1)
        }
        return Chart(
            title: title, horizontal: horizontal, vertical: vertical, style: .dots,
            verticalScale: .logarithmic,
            series: [Series(name: "", points: shown)])
    }
}
