import EventHandlers
import LinuxSystem

/// The media players of a session (MPRIS), each with a connection to the session's bus: the processes that
/// say they play.
///
/// Every peer of the bus can be one. So their number, the questions to them and the changes that each may
/// tell of are limited.
final class MediaPlayers: BusClient {
    private let connection: BusConnection
    private let loop: HandlerLoop
    private let onChange: () -> Void
    private var names: BusSlot?
    private var listing: BusSlot?
    private var players: [String: MediaPlayer] = [:]
    /// Names that wait until more questions are allowed.
    private var waiting: [String] = []
    private var pace: Pace
    private var later: LoopTimer?
    /// Whether the bus has said which players there are.
    private(set) var isConnected = false

    static let prefix = "org.mpris.MediaPlayer2."
    private static let mostPlayers = 64

    init(_ connection: BusConnection, _ loop: HandlerLoop, onChange: @escaping () -> Void) {
        self.connection = connection
        self.loop = loop
        self.onChange = onChange
        pace = Pace(BootClock.now(), burst: 32, milliseconds: 50)
        later = LoopTimer(loop) { [unowned self] in addWaiting() }
        connection.add(self)
    }

    /// The processes that play.
    var playing: Set<UInt32> {
        Set(players.values.compactMap { $0.isPlaying ? $0.process : nil })
    }

    /// Whether the bus has still to answer.
    var isConnecting: Bool { listing != nil && !isConnected }

    /// Why the bus is not there.
    var absence: Absence { connection.absence }

    // MARK: The bus

    private static let bus = "org.freedesktop.DBus"

    func busOpened() {
        guard let handle = unsafe connection.handle else { return }
        let rule =
            "type='signal',sender='\(Self.bus)',interface='\(Self.bus)',member='NameOwnerChanged',"
            + "arg0namespace='org.mpris.MediaPlayer2'"
        names = unsafe BusSlot.match(handle, rule) { [unowned self] message in
            guard message.sender == Self.bus, let name = try? message.text() else { return }
            guard (try? message.text()) != nil, let owner = try? message.text() else { return }
            change(name, hasOwner: !owner.isEmpty)
        }
        list()
    }

    func busDiscardedSignals() { list() }

    private func list() {
        guard let handle = unsafe connection.handle else { return }
        let call = BusCall(
            destination: Self.bus, path: "/org/freedesktop/DBus", interface: Self.bus, member: "ListNames")
        listing = unsafe BusSlot.call(handle, call) { [unowned self] message in
            listing = nil
            guard message.error == nil else { return onChange() }
            var gone = Set(players.keys)
            try? message.array(of: "s") { () throws(BusError) in
                let name = try message.text()
                // A player that is known already finds out itself what it has missed.
                if gone.remove(name) == nil { change(name, hasOwner: true) }
            }
            for name in gone { change(name, hasOwner: false) }
            isConnected = true
            onChange()
        }
    }

    func busClosed(_ absence: Absence) {
        isConnected = false
        names = nil
        listing = nil
        players = [:]
        waiting = []
        onChange()
    }

    private func change(_ name: String, hasOwner: Bool) {
        guard name.hasPrefix(Self.prefix) else { return }
        if players.removeValue(forKey: name) != nil { onChange() }
        waiting.removeAll { $0 == name }
        guard hasOwner, waiting.count + players.count < Self.mostPlayers else { return }
        waiting.append(name)
        addWaiting()
    }

    private func addWaiting() {
        let now = BootClock.now()
        while let name = waiting.first {
            if let instant = pace.instant(after: now) {
                later?.deadline = instant
                return
            }
            pace.spend()
            waiting.removeFirst()
            let player = MediaPlayer(connection, loop, name: name) { [unowned self] in onChange() }
            players[name] = player
            player.begin()
        }
    }
}

/// One media player.
final class MediaPlayer {
    private let service: BusService
    private let connection: BusConnection
    private let onChange: () -> Void
    private var status: BusProperties?
    private var identifying: BusSlot?
    private var pace: Pace
    /// Set while changes are ignored, because there were too many.
    private var muted: LoopTimer?
    private(set) var process: UInt32?
    private(set) var isPlaying = false

    private static let path = "/org/mpris/MediaPlayer2"
    private static let player = "org.mpris.MediaPlayer2.Player"

    init(
        _ connection: BusConnection, _ loop: HandlerLoop, name: String, onChange: @escaping () -> Void
    ) {
        self.connection = connection
        self.onChange = onChange
        pace = Pace(BootClock.now(), burst: 50, milliseconds: 50)
        var change: (BusService.Presence) -> Void = { _ in }
        service = BusService(connection, name: name) { change($0) }
        change = { [unowned self] presence in handle(presence) }
        muted = LoopTimer(loop) { [unowned self] in
            pace = Pace(BootClock.now(), burst: 50, milliseconds: 50)
            follow()
        }
    }

    func begin() { service.begin() }

    private func handle(_ presence: BusService.Presence) {
        if case .doubtful = presence {
            status?.read()
            return
        }
        process = nil
        isPlaying = false
        identifying = nil
        switch presence {
        case .present, .doubtful:
            follow()
            identify()
        case .absent:
            status = nil
            muted?.deadline = nil
        }
        onChange()
    }

    /// The kernel's word, by the bus.
    private func identify() {
        guard let handle = unsafe connection.handle, let owner = service.owner else { return }
        let bus = "org.freedesktop.DBus"
        let call = BusCall(
            destination: bus, path: "/org/freedesktop/DBus", interface: bus,
            member: "GetConnectionUnixProcessID"
        ) { (writer) throws(BusError) in try writer.text(owner) }
        identifying = unsafe BusSlot.call(handle, call) { [unowned self] message in
            process = message.error == nil ? try? message.number() : nil
            identifying = nil
            onChange()
        }
    }

    private func follow() {
        let status = BusProperties(
            service, path: Self.path, interface: Self.player,
            onValue: { [unowned self] name, value in
                if name == "PlaybackStatus" { isPlaying = value == .text("Playing") }
            },
            onRead: { [unowned self] _ in noteChange() })
        self.status = status
        status.read()
    }

    private func noteChange() {
        onChange()
        guard pace.instant(after: BootClock.now()) == nil else {
            // No rule, so that the bus does not even send them. The state is read again after a while.
            status = nil
            muted?.set(milliseconds: 10_000)
            return
        }
        pace.spend()
    }
}
