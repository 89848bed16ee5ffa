import Glibc

/// The seeds that a property test runs.
enum Seeds {
    /// From `NIGHTBELL_SEEDS`: a number of seeds, or a range `first...last`.
    static func fromEnvironment(standard: ClosedRange<UInt64>) -> ClosedRange<UInt64> {
        guard let value = unsafe getenv("NIGHTBELL_SEEDS") else { return standard }
        let parts = unsafe String(cString: value).split(separator: "...").compactMap { UInt64($0) }
        return switch parts.count {
        case 1 where parts[0] > 0: 0...parts[0] - 1
        case 2 where parts[0] <= parts[1]: parts[0]...parts[1]
        default: standard
        }
    }
}
