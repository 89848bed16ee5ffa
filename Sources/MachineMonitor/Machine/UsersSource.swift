import EventHandlers
import NightbellWire

/// Users with a session or a lingering user manager, by logind: their homes are there.
final class UsersSource: Source {
    private let context: SourceContext
    private var service: BusService?
    private var subscriptions: [BusSubscription] = []
    /// The state of each user, as far as it was read.
    private var states: [UInt32: String] = [:]
    private var awaited = 0
    private var isListing = false
    /// Something has changed since the list under way was requested.
    private var isStale = false
    private var again: LoopTimer?
    private var attempts = 0
    private var isKnown = false
    /// The users were known, and are not now. Set while logind or the bus may be being restarted.
    private var restart: LoopTimer?
    private var absence: Absence?

    /// More users are not reported.
    private static let mostUsers = 4_096
    /// A restart takes no longer, in milliseconds.
    private static let longestRestart: Int64 = 10_000
    /// States in which the home is there.
    private static let unlocked: Set = ["lingering", "online", "active", "closing"]

    init(_ context: SourceContext) {
        self.context = context
        again = LoopTimer(context.loop) { [unowned self] in list() }
        restart = LoopTimer(context.loop) { [unowned self] in
            if let absence { reportAbsent(absence) }
        }
        let service = BusService(context.buses.system(), name: Logind.name) { [unowned self] presence in
            handle(presence)
        }
        self.service = service
        // A user's state has no signal of its own: it changes with the first and the last session.
        for member in ["UserNew", "UserRemoved", "SessionNew", "SessionRemoved"] {
            subscriptions.append(
                service.subscribe(
                    BusSubscription.Rule(path: Logind.path, interface: Logind.manager, member: member)
                ) { [unowned self] (_) throws(BusError) in noteChange() })
        }
        subscriptions.append(
            service.subscribe(
                .propertiesChanged(of: Logind.user, below: Logind.path + "/user")
            ) { [unowned self] (_) throws(BusError) in noteChange() })
        service.begin()
    }

    func update(_ demand: WireMonitorDemand) {}

    private func handle(_ presence: BusService.Presence) {
        if case .doubtful = presence { return noteChange() }
        isListing = false
        isStale = false
        again?.deadline = nil
        switch presence {
        case .present, .doubtful: noteChange()
        case .absent(let absence): reportAbsent(absence)
        }
    }

    /// Users that nothing can tell of count as unlocked, and their clients are launched. A restart is no
    /// reason for that.
    private func reportAbsent(_ absence: Absence) {
        self.absence = absence
        if isKnown { restart?.set(milliseconds: Self.longestRestart) }
        isKnown = false
        var reported = absence
        if restart?.deadline != nil { reported.isTemporary = true }
        context.reports.setAbsent(.users, reported)
    }

    private func noteChange() {
        attempts = 0
        list()
    }

    // MARK: Listing

    private func list() {
        guard !isListing else {
            isStale = true
            return
        }
        isListing = true
        isStale = false
        service?.call(Logind.path, Logind.manager, "ListUsers") { [unowned self] reply in
            do throws(BusError) {
                var users: [(uid: UInt32, path: String)] = []
                let message = try reply.get()
                try message.array(of: "(uso)") { () throws(BusError) in
                    try message.structure("uso") { () throws(BusError) in
                        let uid = try message.number()
                        _ = try message.text()
                        users.append((uid, try message.objectPath()))
                    }
                }
                readStates(of: users.prefix(Self.mostUsers))
            } catch {
                isListing = false
                reportAbsent(Absence(reason: "logind: \(error.text)"))
            }
        }
    }

    private func readStates(of users: ArraySlice<(uid: UInt32, path: String)>) {
        states = [:]
        awaited = users.count
        guard awaited > 0 else { return finish() }
        for user in users {
            service?.call(
                user.path, BusProperties.interface, "Get",
                { (writer) throws(BusError) in
                    try writer.text(Logind.user)
                    try writer.text("State")
                },
                reply: { [unowned self] reply in
                    // A user may have gone since.
                    if case .text(let state) = try? reply.get().variant() { states[user.uid] = state }
                    awaited -= 1
                    if awaited == 0 { finish() }
                })
        }
    }

    private func finish() {
        isListing = false
        isKnown = true
        absence = nil
        restart?.deadline = nil
        context.reports.setAvailability(.users, reason: nil)
        var users = WireMonitorReport.Users()
        users.unlocked = states.filter { Self.unlocked.contains($0.value) }.map(\.key).sorted()
        context.reports.report(.users, .users(users))
        if isStale { return list() }
        // The end of a transition has no signal. It takes seconds at most.
        if states.values.contains("opening"), attempts < 8 {
            again?.set(milliseconds: 250 << min(attempts, 5))
            attempts += 1
        }
    }
}
