/// The notifications of all identifiers, whether a client uses them or not.
package struct NotificationTable: Sendable, Equatable {
    /// The notifications of one identifier, by its place in `Supervision.owners`.
    struct Place: Sendable, Equatable {
        /// In the order in which they were scheduled.
        var entries: [SlotID] = []
        /// That the client has still to be told, or to finish.
        var events: [NotificationEvent] = []
        var badge: NotificationBadge?
    }

    struct Closing: Sendable, Equatable {
        var close: NotificationClose
        var place: UInt32
    }

    var entries = SlotMap<NotificationEntry>()
    /// The place of each entry, by slot.
    private var placeOfSlot = SideTable<UInt32>()
    private(set) var places = SideTable<Place>()
    /// When something is due, by the entry's slot.
    private var deadlines = DeadlineQueue()
    /// By number; only looked up, so that the order has no effect.
    private var numbers: [UInt64: SlotID] = [:]
    private var lastNumber: UInt64 = 0
    private(set) var clock: NotificationClock?
    /// The notification server in the session of each user, if one is known.
    private(set) var servers: [UserID: String] = [:]
    /// The connections of the monitors to them.
    private(set) var listeners: [UserID: String] = [:]
    /// The entries of each user that are to be shown, or are shown, by slot. Sorted when they are read.
    private var presented: [UserID: Set<UInt32>] = [:]
    /// Those that are to be closed, with the place of each identifier.
    private var closing: [UserID: [Closing]] = [:]
    /// The places of each user with a badge. Sorted when they are read.
    private var badged: [UserID: Set<UInt32>] = [:]
    /// How many entries each user has.
    private var counts: [UserID: Int] = [:]
    /// The places with events to be told at the end of the turn.
    var untold: Set<UInt32> = []
    /// When to look at those again, in elapsed time.
    var tellDue: Instant?
    /// The places of identifiers with an activated notification, and without a client.
    var absent: [UInt32] = []
    /// Counts the changes of what is asked of the monitors.
    package private(set) var revision: UInt64 = 0

    package init() {}

    package var isEmpty: Bool { places.isEmpty }

    /// In elapsed time.
    var nextDeadline: Instant? { earlier(deadlines.first?.instant, tellDue) }

    // MARK: Entries

    func place(_ place: UInt32) -> Place? { places.contains(place) ? places[place] : nil }

    func count(of user: UserID) -> Int { counts[user] ?? 0 }

    func entry(_ identifier: String, at place: UInt32) -> SlotID? {
        self.place(place)?.entries.first { entries[$0].notification.identifier == identifier }
    }

    func id(of number: UInt64) -> SlotID? { numbers[number] }

    func place(of id: SlotID) -> UInt32 { placeOfSlot[id.slot] }

    /// Numbers are given from here on, or from the last one.
    mutating func number(from number: UInt64) { lastNumber = max(lastNumber, number) }

    mutating func nextNumber() -> UInt64 {
        lastNumber += 1
        return lastNumber
    }

    mutating func insert(_ entry: NotificationEntry, at place: UInt32, of user: UserID) -> SlotID {
        let id = entries.insert(entry)
        lastNumber = max(lastNumber, entry.number)
        numbers[entry.number] = id
        placeOfSlot.insert(place, at: id.slot)
        change(place) { $0.entries.append(id) }
        counts[user, default: 0] += 1
        settle(id, of: user)
        return id
    }

    mutating func remove(_ id: SlotID, of user: UserID) {
        guard entries.contains(id) else { return }
        let place = placeOfSlot[id.slot]
        deadlines.set(id.slot, to: nil)
        if presented[user]?.remove(id.slot) != nil { revision += 1 }
        if presented[user]?.isEmpty == true { presented[user] = nil }
        numbers[entries[id].number] = nil
        placeOfSlot.remove(id.slot)
        entries.remove(id)
        counts[user, default: 0] -= 1
        if counts[user] == 0 { counts[user] = nil }
        change(place) { $0.entries.removeAll { $0 == id } }
    }

    /// Sets the timer of an entry, and whether it is asked of a monitor, after it was changed.
    mutating func settle(_ id: SlotID, of user: UserID) {
        setDeadline(id)
        let isPresented = entries[id].presentation != nil
        let wasPresented = presented[user]?.contains(id.slot) ?? false
        guard isPresented || wasPresented else { return }
        revision += 1
        if isPresented {
            presented[user, default: []].insert(id.slot)
        } else {
            presented[user]?.remove(id.slot)
            if presented[user]?.isEmpty == true { presented[user] = nil }
        }
    }

    mutating func popDue(at elapsed: Instant) -> SlotID? {
        deadlines.popDue(at: elapsed).flatMap { entries.id(inSlot: $0) }
    }

    // MARK: Events

    mutating func change(_ place: UInt32, _ change: (inout Place) -> Void) {
        var value = self.place(place) ?? Place()
        change(&value)
        if value.entries.isEmpty, value.events.isEmpty, value.badge == nil {
            places.remove(place)
        } else {
            places.insert(value, at: place)
        }
    }

    mutating func restore(_ event: NotificationEvent, at place: UInt32) {
        lastNumber = max(lastNumber, event.number)
        change(place) { $0.events.append(event) }
    }

    // MARK: Badges

    mutating func set(_ badge: NotificationBadge?, at place: UInt32, of user: UserID) {
        change(place) { $0.badge = badge }
        revision += 1
        guard let badge else {
            badged[user]?.remove(place)
            if badged[user]?.isEmpty == true { badged[user] = nil }
            return
        }
        lastNumber = max(lastNumber, badge.number)
        badged[user, default: []].insert(place)
    }

    func placesWithBadge(of user: UserID) -> [UInt32] { (badged[user] ?? []).sorted() }

    // MARK: Clocks and servers

    /// - Returns: the entries that aim at another time now.
    mutating func set(_ clock: NotificationClock, at elapsed: Instant) -> [SlotID] {
        guard clock != self.clock else { return [] }
        self.clock = clock
        var changed: [SlotID] = []
        for id in Array(entries.ids) {
            let target = entries[id].target
            entries[id].follow(clock, at: elapsed)
            if entries[id].target != target { changed.append(id) }
            setDeadline(id)
        }
        return changed
    }

    /// Forgets a change of the time zone that has passed. All aim at the same times as before.
    mutating func passZoneChange(at elapsed: Instant) {
        guard let clock, clock.change != nil else { return }
        let settled = clock.settled(at: elapsed)
        guard settled != clock else { return }
        self.clock = settled
        for id in Array(entries.ids) { setDeadline(id) }
    }

    private mutating func setDeadline(_ id: SlotID) {
        deadlines.set(id.slot, to: earlier(entries[id].due(clock), entries[id].presentation?.notBefore))
    }

    mutating func set(_ server: String?, listener: String, of user: UserID) {
        listeners[user] = server == nil ? nil : listener
        guard servers[user] != server else { return }
        servers[user] = server
        revision += 1
    }

    /// The entries of a user that are to be shown, or are shown.
    func presented(of user: UserID) -> [SlotID] {
        (presented[user] ?? []).sorted().compactMap { entries.id(inSlot: $0) }
    }

    // MARK: The demand

    /// The longest list of notifications that one demand contains: with the longest contents they fit into
    /// half a packet.
    package static let postsAtOnce = 8
    private static let closesAtOnce = 256

    func isClosing(_ notification: UInt64, _ display: NotificationEntry.Display?, of user: UserID) -> Bool {
        closing[user]?.contains { known in
            known.close.notification == notification && known.close.display?.id == display?.id
                && known.close.display?.server == display?.server
        } ?? false
    }

    /// - Returns: the oldest, if there are too many: that one is left on the screen.
    mutating func add(_ close: NotificationClose, at place: UInt32, of user: UserID) -> Closing? {
        closing[user, default: []].append(Closing(close: close, place: place))
        revision += 1
        return closing[user, default: []].count > Self.closesAtOnce ? closing[user]?.removeFirst() : nil
    }

    mutating func restore(_ close: NotificationClose, at place: UInt32, of user: UserID) {
        lastNumber = max(lastNumber, close.number)
        closing[user, default: []].append(Closing(close: close, place: place))
    }

    mutating func removeCloses(of user: UserID, where isOver: (NotificationClose) -> Bool) -> [Closing] {
        guard let all = closing[user] else { return [] }
        let ended = all.filter { isOver($0.close) }
        guard !ended.isEmpty else { return [] }
        let left = all.filter { !isOver($0.close) }
        closing[user] = left.isEmpty ? nil : left
        revision += 1
        return ended
    }

    /// Users with a session that has to be observed.
    var users: Set<UserID> {
        if presented.isEmpty, closing.isEmpty, badged.isEmpty { return [] }
        return Set(presented.keys).union(closing.keys).union(badged.keys)
    }

    func needsServer(of user: UserID) -> Bool {
        presented[user] != nil || closing[user] != nil || badged[user] != nil
    }

    func closes(of user: UserID) -> [NotificationClose] { (closing[user] ?? []).map(\.close) }
}
