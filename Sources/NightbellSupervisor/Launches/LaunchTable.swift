import Glibc
import Launching
import NightbellCore

/// The launch data of clients, for as long as the core knows them: how and with which identity they are
/// launched, the state their last process left, and launches in progress. There may be thousands.
struct LaunchTable: ~Copyable {
    /// For the client in the slot of this index.
    private struct Entry {
        let generation: UInt32
        let setting: LaunchSetting
    }

    private var entries: [Entry?] = []
    /// `LaunchRecipe.own`, by client slot.
    private var own = SlotTexts()
    private var states = SlotTexts()
    private var attempts: [UInt32: LaunchAttempt] = [:]
    /// The clients that these processes were launched as.
    private var clients: [pid_t: ClientID] = [:]
    /// Why launches failed, as text for a user.
    private var problems: [UInt32: String] = [:]
    var settings = LaunchSettings()
    /// Clients that are about to reconnect, and are not launched meanwhile.
    var returning = Returning()
    /// Declared clients that have lost their connections, and run on.
    var departed: [ClientIdentifier: DepartedProcess] = [:]
    /// Clients with launched processes that may have ended before they said Hello: messages that they sent
    /// are handled first.
    private var ended: [ClientID] = []
    /// Launched wrapper processes that were there when the process of their client had ended.
    private var wrappers: [(client: ClientID, process: LaunchWrapper)] = []
    /// Declared clients.
    private(set) var declarations: [ClientIdentifier: Declaration] = [:]

    init(_ declarations: [Declaration]) { declare(declarations) }

    /// Replaces the earlier declarations.
    mutating func declare(_ declarations: [Declaration]) {
        let possible = declarations.filter { $0.launch.problem == nil }
        self.declarations = Dictionary(
            possible.map { ($0.registration.identifier, $0) }, uniquingKeysWith: { first, _ in first })
    }

    func contains(_ client: ClientID) -> Bool { self.client(inSlot: client.slot) == client }

    private func client(inSlot slot: UInt32) -> ClientID? {
        guard Int(slot) < entries.count, let entry = entries[Int(slot)] else { return nil }
        return ClientID(rawValue: UInt64(entry.generation) << 32 | UInt64(slot))
    }

    /// The client with the launch that a loop event is about, unless that is over.
    func client(for token: WatchToken) -> ClientID? {
        guard let client = client(inSlot: token.slot), token.names(client.rawValue) else { return nil }
        return client
    }

    /// How it is launched; nil: it cannot be.
    func recipe(of client: ClientID) -> LaunchRecipe? {
        guard contains(client), let entry = entries[Int(client.slot)] else { return nil }
        return LaunchRecipe(entry.setting, own: Array(own[client.slot]))
    }

    /// The state that its last process left.
    func state(of client: ClientID) -> [UInt8] { contains(client) ? Array(states[client.slot]) : [] }

    mutating func setState(_ state: [UInt8], of client: ClientID) {
        if contains(client) { states.set(client.slot, to: state) }
    }

    func attempt(of client: ClientID) -> LaunchAttempt? { contains(client) ? attempts[client.slot] : nil }

    mutating func setAttempt(_ attempt: LaunchAttempt?, of client: ClientID) {
        guard contains(client) else { return }
        endAttempt(client.slot)
        attempts[client.slot] = attempt
        if let attempt { clients[attempt.pid] = client }
    }

    private mutating func endAttempt(_ slot: UInt32) {
        if let attempt = attempts.removeValue(forKey: slot) { clients[attempt.pid] = nil }
    }

    /// Wrappers that were launched and have started the client's process end soon after it. Those that have
    /// not ended by now are reaped when the next client ends.
    mutating func reapWrappers(of client: ClientID, adding wrapper: LaunchWrapper?) {
        if let wrapper, !wrappers.contains(where: { $0.process === wrapper }) {
            wrappers.append((client, wrapper))
        }
        wrappers.removeAll { $0.process.reap() }
    }

    /// Kills those of a client's wrappers that have not ended, with what they have started: another launch
    /// follows, and one that starts its program again and again would be a second copy.
    mutating func killWrappers(of client: ClientID) { signalWrappers(of: client, SIGKILL) }

    /// Asks them to end: the client was quit.
    mutating func terminateWrappers(of client: ClientID) { signalWrappers(of: client, SIGTERM) }

    private mutating func signalWrappers(of client: ClientID, _ number: CInt) {
        guard wrappers.contains(where: { $0.client == client }) else { return }
        reapWrappers(of: client, adding: nil)
        for wrapper in wrappers where wrapper.client == client { wrapper.process.signalGroup(number) }
    }

    mutating func noteEnd(of client: ClientID) { ended.append(client) }

    /// Those noted since the last call.
    mutating func takeEnded() -> [ClientID] {
        guard !ended.isEmpty else { return [] }
        defer { ended = [] }
        return ended
    }

    var hasAttempts: Bool { !attempts.isEmpty }

    /// The client that is being launched as this process.
    func client(launchedAs pid: pid_t) -> ClientID? { clients[pid] }

    /// Launches of processes that have not said Hello.
    var silentAttempts: [LaunchAttempt] { attempts.values.filter { $0.introduction == nil } }

    // MARK: Launches that end

    /// Launches that were asked to end: their first process has, and has left others.
    private(set) var leftovers: [Leftover] = []

    struct Leftover {
        let identifier: String
        let attempt: LaunchAttempt
    }

    mutating func leaveToEnd(_ attempt: LaunchAttempt, _ identifier: String) {
        leftovers.append(Leftover(identifier: identifier, attempt: attempt))
    }

    /// Whether processes of a launch in this session were asked to end.
    func isEnding(session: @autoclosure () -> pid_t) -> Bool {
        guard !leftovers.isEmpty else { return false }
        let session = session()
        return leftovers.contains { $0.attempt.pid == session && $0.attempt.hasProcesses }
    }

    /// All that were asked to end and have not.
    var askedToEnd: [LaunchAttempt] {
        attempts.isEmpty && leftovers.isEmpty
            ? [] : attempts.values.filter { $0.killsAt != nil } + leftovers.map(\.attempt)
    }

    /// When the first one is killed that was asked to end; it may have ended since. Stored, because each turn
    /// asks.
    private(set) var nextKill: Instant?

    mutating func noteAskedToEnd(until deadline: Instant) { nextKill = min(nextKill ?? deadline, deadline) }

    mutating func forgetEnded() {
        leftovers.removeAll { $0.attempt.killsAt == nil || !$0.attempt.hasProcesses }
        nextKill = askedToEnd.compactMap(\.killsAt).min()
    }

    /// Kills the processes that this client's last launch has left: another one follows.
    mutating func killLeftovers(of identifier: String) {
        for leftover in leftovers where leftover.identifier == identifier { leftover.attempt.killRest() }
        leftovers.removeAll { $0.attempt.killsAt == nil }
    }

    /// Why its last launch failed, if it did.
    func problem(of client: ClientID) -> String? { contains(client) ? problems[client.slot] : nil }

    mutating func setProblem(_ problem: String?, of client: ClientID) {
        if contains(client) { problems[client.slot] = problem }
    }

    /// Makes a client launchable, or changes how it is launched.
    ///
    /// - Precondition: its setting is one of `settings`.
    mutating func insert(_ recipe: LaunchRecipe, state: [UInt8], of client: ClientID) {
        settings.enter(recipe.setting)
        empty(client.slot)
        if Int(client.slot) >= entries.count {
            let missing = Int(client.slot) + 1 - entries.count
            entries.makeRoom(for: missing)
            entries.append(contentsOf: repeatElement(nil, count: missing))
        }
        entries[Int(client.slot)] = Entry(
            generation: UInt32(truncatingIfNeeded: client.rawValue >> 32), setting: recipe.setting)
        own.set(client.slot, to: recipe.own)
        states.set(client.slot, to: state)
    }

    mutating func remove(_ client: ClientID) {
        if contains(client) { empty(client.slot) }
    }

    private mutating func empty(_ slot: UInt32) {
        guard Int(slot) < entries.count, let entry = entries[Int(slot)] else { return }
        settings.leave(entry.setting)
        entries[Int(slot)] = nil
        own.remove(slot)
        states.remove(slot)
        endAttempt(slot)
        problems[slot] = nil
    }
}
