/// The best moments to fetch in the next day: those after which openings are likely, as few as that takes.
///
/// Data is fresh for a while after a fetch, so each fetch covers the openings expected in that time. The plan
/// has the largest sum of covered openings, less a price for each fetch, among all plans that keep the pause
/// between two.
struct FetchPlan {
    private static let step = 120
    private static let steps = LocalTime.secondsPerDay / step

    /// The expected openings up to each step, from the beginning of the plan.
    private var sums: [Double]
    /// How many steps a fetch covers.
    private let covered: Int
    /// The number of steps between two fetches.
    private let pause: Int
    /// The number of steps at the beginning that an earlier fetch covers.
    private let coveredAlready: Int

    /// - Parameters:
    ///   - start: the first moment at which a fetch is permitted.
    ///   - fresh: how long a fetch covers openings.
    ///   - freshUntil: how long after `start` an earlier fetch covers them.
    ///   - returnsUntil: how long after `start` an opening would be a return to the latest one.
    init(
        _ habit: Habit, from start: LocalTime, pause: Duration, fresh: Duration, freshUntil: Duration,
        returnsUntil: Duration
    ) {
        covered = max(1, Self.stepsRoundedDown(fresh))
        // A second fetch within the time that the first one covers would be wasted.
        self.pause = max(covered, Self.stepsRoundedDown(pause + .seconds(Self.step) - .nanoseconds(1)), 1)
        coveredAlready = max(0, min(Self.stepsRoundedDown(freshUntil), Self.steps))
        sums = [0]
        sums.reserveCapacity(Self.steps + covered + 1)
        var days: [Int: [Double]] = [:]
        for index in 0..<Self.steps + covered {
            let time = LocalTime(
                nanoseconds: start.nanoseconds + Int64(index * Self.step + Self.step / 2) * 1_000_000_000)
            let rates = days[time.day] ?? habit.expectedOpenings(on: time.day)
            days[time.day] = rates
            sums.append(sums[index] + Self.openings(at: time.secondOfDay, rates))
        }
        expectReturns(min(Self.stepsRoundedDown(returnsUntil), Self.steps), habit.returnProbability)
    }

    /// Soon after an opening the usual one of that hour is over; another one is a return.
    private mutating func expectReturns(_ count: Int, _ probability: Double) {
        guard count > 0, sums[count] > probability else { return }
        let usual = sums[count]
        for index in 1..<sums.count {
            sums[index] =
                index <= count ? sums[index] * probability / usual : sums[index] - usual + probability
        }
    }

    private static func stepsRoundedDown(_ duration: Duration) -> Int {
        Int(max(duration, .zero).nanoseconds / (Int64(step) * 1_000_000_000))
    }

    /// The openings expected in the step around this time of day, between the middles of two slots.
    private static func openings(at second: Int, _ rates: [Double]) -> Double {
        let place = Double(second) / Double(Habit.secondsPerSlot) - 0.5
        let first = Int(place.rounded(.down))
        let share = place - Double(first)
        let last = rates.count - 1
        let rate = rates[min(max(first, 0), last)] * (1 - share) + rates[min(max(first + 1, 0), last)] * share
        return rate * Double(step) / Double(Habit.secondsPerSlot)
    }

    /// How long after its start the plan has its first fetch; nil: it has none. A price that gives fewer
    /// fetches in a day than `limits` is lowered, unless they would be useless; one that gives more is
    /// raised.
    func firstFetch(price: Double, _ limits: ClosedRange<Int>) -> Duration? {
        var price = price
        var plan = best(price)
        while plan.count < limits.lowerBound, price > Self.lowestPrice {
            let cheaper = best(price / Self.priceStep)
            guard cheaper.count <= limits.lowerBound else { break }
            price /= Self.priceStep
            plan = cheaper
        }
        while plan.count > limits.upperBound {
            price *= Self.priceStep
            plan = best(price)
        }
        return plan.first.map { .seconds($0 * Self.step) }
    }

    private static let priceStep = 1.25
    /// A fetch for an opening that is less probable is useless.
    private static let lowestPrice = 0.004

    /// The first fetch of the best plan, and the number of its fetches.
    private func best(_ price: Double) -> (first: Int?, count: Int) {
        var values = [Double](repeating: 0, count: Self.steps + pause + 1)
        var counts = [Int](repeating: 0, count: Self.steps + pause + 1)
        var first: Int?
        for index in (0..<Self.steps).reversed() {
            let with = covered(from: index) - price + values[index + pause]
            // Of two plans that are equally good the later one has fresher data.
            if with > values[index + 1] {
                values[index] = with
                counts[index] = counts[index + pause] + 1
                first = index
            } else {
                values[index] = values[index + 1]
                counts[index] = counts[index + 1]
            }
        }
        return (first, counts[0])
    }

    private func covered(from index: Int) -> Double {
        sums[index + covered] - sums[min(max(index, coveredAlready), index + covered)]
    }
}
