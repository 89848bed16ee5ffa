import Glibc

/// One axis of a picture: its range and its labels.
package struct Axis: Sendable {
    package enum Scale: Sendable {
        case linear
        case logarithmic
        /// Shares below one; each unit of length is one more nine: 0.9, 0.99, 0.999.
        case nines
    }

    package let scale: Scale
    private let low: Double
    private let high: Double

    package init(_ scale: Scale, _ values: [Double]) {
        self.scale = scale
        let positions = values.map { Self.position($0, scale) }.filter(\.isFinite)
        let (least, most) = (positions.min() ?? 0, positions.max() ?? 1)
        switch scale {
        case .linear:
            // Rates and counts are compared with zero.
            low = min(0, least)
            let step = Self.step(most - low)
            high = max(low + step, (most / step).rounded(.up) * step)
        case .logarithmic:
            low = least.rounded(.down)
            high = max(low + 1, most.rounded(.up))
        case .nines:
            low = 0
            high = max(1, most.rounded(.up))
        }
    }

    /// From 0 to 1.
    package func place(_ value: Double) -> Double {
        let position = Self.position(value, scale)
        return min(1, max(0, (position - low) / (high - low)))
    }

    /// The positions of lines, and their labels.
    package var ticks: [(value: Double, label: String)] {
        switch scale {
        case .linear:
            let step = Self.step(high - low)
            return stride(from: low, through: high + step / 2, by: step).map { ($0, Self.label($0)) }
        case .logarithmic:
            return stride(from: low, through: high, by: 1).map { (pow(10, $0), Self.label(pow(10, $0))) }
        case .nines:
            return stride(from: 0, through: high, by: 1).map { nines in
                let share = 1 - pow(10, -nines)
                return (
                    share, nines == 0 ? "0 %" : figure(share * 100, digits: max(0, Int(nines) - 2)) + " %"
                )
            }
        }
    }

    private static func position(_ value: Double, _ scale: Scale) -> Double {
        switch scale {
        case .linear: value
        case .logarithmic: value > 0 ? log10(value) : -.infinity
        case .nines: value < 1 ? -log10(1 - value) : .infinity
        }
    }

    /// 1, 2 or 5 times a power of ten, so that about five fit.
    private static func step(_ span: Double) -> Double {
        guard span > 0 else { return 1 }
        let power = pow(10, log10(span / 5).rounded(.down))
        let rest = span / 5 / power
        return power * (rest <= 1 ? 1 : rest <= 2 ? 2 : rest <= 5 ? 5 : 10)
    }

    private static func label(_ value: Double) -> String {
        switch abs(value) {
        case 1_000_000...: figure(value / 1_000_000, digits: 2) + " M"
        case 10_000...: figure(value / 1_000, digits: 1) + " k"
        default: figure(value, digits: 3)
        }
    }
}
