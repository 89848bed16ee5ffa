/// When a client is usually brought to the foreground: how often in each slot of the day, for each day of the
/// week. Older days count exponentially less.
///
/// Its size is fixed: 524 bytes for each client that uses fetch.
package struct Habit: Sendable, BitwiseCopyable {
    static let slotsPerDay = 72
    static let secondsPerSlot = LocalTime.secondsPerDay / slotsPerDay
    static let byteCount = 7 * slotsPerDay + 7 + 9
    /// From this many observed days on it predicts better than equal intervals do.
    static let usefulDays = 3

    /// One opening; the largest sum of a weekly opening, with what is left of earlier weeks, stays below 256.
    private static let unit = 64.0
    /// The share that is left of a day's weight after another day.
    private static let dailyDecay = 0.93
    /// The clock goes back by this many days, or fewer, without a new beginning.
    private static let setBack = 2
    /// Less time between two openings makes them one.
    private static let visit = Duration.seconds(secondsPerSlot)
    /// Another visit within this time is a return.
    static let returnTime = Duration.seconds(3_600)

    /// In units, by weekday and slot.
    private var openings = InlineArray<504, UInt8>(repeating: 0)
    /// The weight of the observed days, in units, by weekday.
    private var days = InlineArray<7, UInt8>(repeating: 0)
    /// The day that is being observed; it is added to `days` when it is over.
    private var currentDay = Int32.min
    /// The number of days that were observed to their end, at most 255.
    package private(set) var observedDays: UInt8 = 0
    /// The latest visits, and how many of them were followed by another one soon.
    private var visits: UInt8 = 0
    private var returns: UInt8 = 0
    /// How well each of `widths` predicts this client, in 255ths of the sum of all.
    private var trust = InlineArray<2, UInt8>(repeating: 85)

    package init() {}

    var isUseful: Bool { observedDays >= Self.usefulDays }

    /// How far from an earlier opening another one is expected, in slots: some clients are opened to the
    /// minute, others are not.
    private static let widths = [0, 2, 5]
    /// The share of the trust that is divided equally before each opening, so that it can change.
    private static let doubt = 0.05

    // MARK: Learning

    /// Continues to the day of `time`. Days without a call were not observed, because the machine or the
    /// client was off.
    mutating func advance(to time: LocalTime) {
        let day = Int32(clamping: time.day)
        // The clock goes back a little now and then. If it goes back further it was wrong before, and that
        // day does not count.
        guard day > currentDay || Int(day) < Int(currentDay) - Self.setBack else { return }
        if currentDay != .min, day > currentDay {
            let weekday = LocalTime.weekday(of: Int(currentDay))
            days[weekday] = UInt8(clamping: Int(days[weekday]) + Int(Self.unit))
            observedDays = min(observedDays, .max - 1) + 1
        }
        currentDay = day
        // The slots of this weekday are from a week ago.
        let weekday = LocalTime.weekday(of: Int(day))
        var weekly = 1.0
        for _ in 0..<7 { weekly *= Self.dailyDecay }
        days[weekday] = Self.decayed(days[weekday], weekly)
        for slot in 0..<Self.slotsPerDay {
            let index = weekday * Self.slotsPerDay + slot
            openings[index] = Self.decayed(openings[index], weekly)
        }
    }

    private static func decayed(_ value: UInt8, _ factor: Double) -> UInt8 {
        UInt8(clamping: Int((Double(value) * factor).rounded()))
    }

    /// Adds an opening, divided between the two slots with the nearest middles.
    mutating func add(openingAt time: LocalTime, isReturn: Bool) {
        advance(to: time)
        if visits >= 64 {
            visits /= 2
            returns /= 2
        }
        visits += 1
        if isReturn { returns += 1 }
        let place = Double(time.secondOfDay) / Double(Self.secondsPerSlot) - 0.5
        let first = place.rounded(.down)
        let share = place - first
        judgeWidths(by: time, slot: Int(place + 0.5))
        add(Self.unit * (1 - share), at: Int(first), on: time.day)
        add(Self.unit * share, at: Int(first) + 1, on: time.day)
    }

    private mutating func add(_ weight: Double, at slot: Int, on day: Int) {
        let slot = min(max(slot, 0), Self.slotsPerDay - 1)
        let index = LocalTime.weekday(of: day) * Self.slotsPerDay + slot
        openings[index] = UInt8(clamping: Int(openings[index]) + Int(weight.rounded()))
    }

    /// Trusts the widths more that have expected this opening, in proportion to their predictions.
    private mutating func judgeWidths(by time: LocalTime, slot: Int) {
        guard isUseful else { return }
        let rates = rates(on: time.day)
        var trust = trusts
        for (index, width) in Self.widths.enumerated() {
            let expected = Self.widened(rates, by: width)[min(max(slot, 0), Self.slotsPerDay - 1)]
            let equal = Self.doubt / Double(Self.widths.count)
            trust[index] = (trust[index] * (1 - Self.doubt) + equal) * (expected + 0.005)
        }
        let sum = trust.reduce(0, +)
        for index in self.trust.indices {
            self.trust[index] = UInt8(clamping: Int((trust[index] / sum * 255).rounded()))
        }
    }

    private var trusts: [Double] {
        let first = trust.indices.map { Double(trust[$0]) / 255 }
        return first + [max(0, 1 - first.reduce(0, +))]
    }

    /// Whether an opening begins a new visit.
    static func isVisit(_ opening: Instant, after last: Instant?) -> Bool {
        last.map { opening.since($0) >= visit } ?? true
    }

    // MARK: Predicting

    /// How likely a visit is followed by another one soon.
    var returnProbability: Double { (Double(returns) + 0.5) / (Double(visits) + 2) }

    /// The expected number of openings in each slot of a day.
    func expectedOpenings(on day: Int) -> [Double] {
        let rates = rates(on: day)
        let widened = zip(Self.widths, trusts).map { (Self.widened(rates, by: $0), $1) }
        return rates.indices.map { slot in widened.reduce(0) { $0 + $1.0[slot] * $1.1 } }
    }

    /// The openings in each slot, as far as earlier days tell.
    ///
    /// A weekday has been seen a few times at most. So its own slots count as far as it was seen, otherwise
    /// those of all days of its kind (of the working week, or of the weekend), and otherwise those of all
    /// days.
    private func rates(on day: Int) -> [Double] {
        let weekday = LocalTime.weekday(of: day)
        let isWeekend = LocalTime.isWeekend(weekday)
        var all = Sum()
        var kind = Sum()
        var own = Sum()
        for other in 0..<7 {
            let age = (weekday - other + 7) % 7
            var weight = 1.0
            // Today's slots are a week old, apart from those that are over anyway.
            for _ in 0..<(age == 0 ? 6 : age - 1) { weight *= Self.dailyDecay }
            let weighted = sum(of: other, weight)
            all.add(weighted)
            if LocalTime.isWeekend(other) == isWeekend { kind.add(weighted) }
            if other == weekday { own.add(weighted) }
        }
        var general = all.rates(or: [Double](repeating: 0, count: Self.slotsPerDay), weight: 0.25)
        if isWeekend { general = Self.later(general) }
        let ofKind = kind.rates(or: general, weight: 1)
        return own.rates(or: ofKind, weight: 3)
    }

    /// Expects the mornings of a weekend that was never seen to begin up to two hours later than others.
    private static func later(_ rates: [Double]) -> [Double] {
        let noon = slotsPerDay / 2
        let delay = 6
        return rates.indices.map { slot in
            let from = max(0, slot - delay)
            let mornings = (from...slot).reduce(0.0) { $0 + ($1 < noon ? rates[$1] : 0) }
            return (slot < noon ? 0 : rates[slot]) + mornings / Double(delay + 1)
        }
    }

    /// Expects each slot's openings up to `width` slots earlier or later.
    private static func widened(_ rates: [Double], by width: Int) -> [Double] {
        guard width > 0 else { return rates }
        var sums = [0.0]
        for rate in rates { sums.append(sums[sums.count - 1] + rate) }
        return rates.indices.map { slot in
            let from = max(0, slot - width)
            let to = min(rates.count, slot + width + 1)
            return (sums[to] - sums[from]) / Double(2 * width + 1)
        }
    }

    private func sum(of weekday: Int, _ weight: Double) -> Sum {
        let scale = weight / Self.unit
        return Sum(
            days: Double(days[weekday]) * scale,
            openings: (0..<Self.slotsPerDay).map {
                Double(openings[weekday * Self.slotsPerDay + $0]) * scale
            })
    }

    /// The openings of several days.
    private struct Sum {
        var days = 0.0
        var openings = [Double](repeating: 0, count: slotsPerDay)

        mutating func add(_ other: Sum) {
            days += other.days
            for slot in openings.indices { openings[slot] += other.openings[slot] }
        }

        /// The openings per day, mixed with other rates that count as much as `weight` days.
        func rates(or other: [Double], weight: Double) -> [Double] {
            openings.indices.map { (openings[$0] + weight * other[$0]) / (days + weight) }
        }
    }
}

extension Habit: Equatable {
    package static func == (one: Habit, other: Habit) -> Bool {
        one.currentDay == other.currentDay && one.observedDays == other.observedDays
            && one.visits == other.visits && one.returns == other.returns
            && one.trusts == other.trusts && one.days.indices.allSatisfy { one.days[$0] == other.days[$0] }
            && one.openings.indices.allSatisfy { one.openings[$0] == other.openings[$0] }
    }
}

// MARK: Storing

extension Habit {
    /// Its bytes for a record. Their order is part of the format of records.
    package var bytes: [UInt8] {
        var bytes: [UInt8] = []
        bytes.reserveCapacity(Self.byteCount)
        for index in openings.indices { bytes.append(openings[index]) }
        for index in days.indices { bytes.append(days[index]) }
        let day = UInt32(bitPattern: currentDay)
        for shift in stride(from: UInt32(0), to: 32, by: 8) {
            bytes.append(UInt8(truncatingIfNeeded: day >> shift))
        }
        return bytes + [observedDays, visits, returns, trust[0], trust[1]]
    }

    /// nil: the bytes are of another format.
    package init?(bytes: [UInt8]) {
        guard bytes.count == Self.byteCount else { return nil }
        for index in openings.indices { openings[index] = bytes[index] }
        for index in days.indices { days[index] = bytes[openings.count + index] }
        let rest = openings.count + days.count
        var day: UInt32 = 0
        for index in 0..<4 { day |= UInt32(bytes[rest + index]) << UInt32(8 * index) }
        currentDay = Int32(bitPattern: day)
        observedDays = bytes[rest + 4]
        visits = bytes[rest + 5]
        returns = bytes[rest + 6]
        for index in trust.indices { trust[index] = bytes[rest + 7 + index] }
    }
}

extension Habit {
    /// The hours of the day in which it is usually opened, busiest first, at most `count`: for display.
    package func usualHours(on day: Int, atMost count: Int) -> [Int] {
        let rates = expectedOpenings(on: day)
        let slotsPerHour = Self.slotsPerDay / 24
        let hours = (0..<24).map { hour in
            (hour, (0..<slotsPerHour).reduce(0.0) { $0 + rates[hour * slotsPerHour + $1] })
        }
        return hours.filter { $0.1 >= 0.25 }.sorted { ($1.1, $0.0) < ($0.1, $1.0) }.prefix(count).map(\.0)
    }
}
