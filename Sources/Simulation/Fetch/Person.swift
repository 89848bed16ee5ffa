/// A person with habits, drawn from a seed: when a client is opened, day by day.
///
/// The scheduler is not told of any of this. Hours are normally distributed around habitual ones, some of
/// which are skipped; other openings have no pattern at all.
struct Person {
    enum Kind: CaseIterable {
        /// Hours with a standard deviation of 10 to 20 minutes.
        case regular
        /// Hours with one of 25 to 35 minutes.
        case irregular
        /// Early and late shifts in turn, a week each.
        case shifts
        /// Opens it once a day or less, within some hours.
        case occasional
    }

    struct Hour {
        /// In seconds of the day.
        var middle: Int
        var deviation: Int
        /// In percent.
        var probability: Int
    }

    let kind: Kind
    private let working: [Hour]
    private let weekend: [Hour]
    /// In seconds a day.
    private let drift: Int
    /// Holidays have the hours of a weekend, an hour later.
    private let holidays: Range<Int>
    /// Openings without a pattern, in percent of a day's.
    private let spontaneous: Int

    init(_ random: inout SplitMix64, firstDay: Int, days: Int) {
        switch random.below(100) {
        case 0..<84: kind = .regular
        case 84..<94: kind = .irregular
        case 94..<96: kind = .shifts
        default: kind = .occasional
        }
        let deviation: ClosedRange<Int>
        switch kind {
        case .regular: deviation = 10...20
        case .irregular: deviation = 25...35
        case .shifts: deviation = 10...20
        case .occasional: deviation = 45...90
        }
        working = Self.hours(kind, deviation, &random)
        weekend = Self.weekend(after: working, &random)
        drift = random.once(in: 5) ? random.below(3 * 60) : 0
        let isAway = random.once(in: 10) && days > 6
        let start = firstDay + (isAway ? random.below(days - 3) : 0)
        holidays = start..<start + (isAway ? 2 + random.below(3) : 0)
        spontaneous = random.below(16)
    }

    private static func hours(
        _ kind: Kind, _ deviation: ClosedRange<Int>, _ random: inout SplitMix64
    ) -> [Hour] {
        /// The usual hours of a day, in minutes: after getting up, at noon, after work, in the evening.
        let usual = [7 * 60 + 15, 12 * 60 + 20, 17 * 60 + 50, 21 * 60 + 30]
        let count = kind == .occasional ? 1 : 2 + random.below(3)
        var chosen = Array(0..<usual.count)
        while chosen.count > count { chosen.remove(at: random.below(chosen.count)) }
        return chosen.map { index in
            let minute = usual[index] + random.below(121) - 60
            let width = deviation.lowerBound + random.below(deviation.count)
            let probability = kind == .occasional ? 40 + random.below(41) : 80 + random.below(21)
            return Hour(middle: minute * 60, deviation: width * 60, probability: probability)
        }
    }

    /// In the morning later than on working days, in the evening much the same, and less sure altogether.
    private static func weekend(after working: [Hour], _ random: inout SplitMix64) -> [Hour] {
        let later = random.below(91) * 60
        return working.map { hour in
            var hour = hour
            if hour.middle < 14 * 3_600 { hour.middle += later } else { hour.middle += random.below(1_800) }
            hour.probability -= random.below(20)
            return hour
        }
    }

    /// The openings of a day, in seconds of the day, sorted.
    func openings(on day: Int, weekday: Int, since firstDay: Int, _ random: inout SplitMix64) -> [Int] {
        let isFree = weekday >= 5 || holidays.contains(day)
        var offset = drift * (day - firstDay)
        if holidays.contains(day) { offset += 3_600 }
        let week = (day + 3) / 7
        if kind == .shifts, !isFree, week % 2 == 0 { offset += 5 * 3_600 }
        var openings: [Int] = []
        for hour in isFree ? weekend : working where random.below(100) < hour.probability {
            openings.append(hour.middle + offset + Self.normal(hour.deviation, &random))
        }
        if random.below(100) < spontaneous { openings.append((7 * 60 + random.below(16 * 60)) * 60) }
        return openings.map { min(max($0, 0), 86_399) }.sorted()
    }

    /// The sum of twelve equally distributed numbers is very nearly normally distributed.
    private static func normal(_ deviation: Int, _ random: inout SplitMix64) -> Int {
        let resolution = 1_000
        let sum = (0..<12).reduce(0) { sum, _ in sum + random.below(resolution + 1) }
        return (sum - 6 * resolution) * deviation / resolution
    }
}
