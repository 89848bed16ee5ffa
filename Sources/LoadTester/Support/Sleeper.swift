import CFloors
import Glibc
import LinuxSystem
import Nightbell
import Simulation

/// A client that sleeps: one socket, and a wake handler that reads from it.
final class Sleeper {
    struct Settings {
        var identifier: String
        var supervisorSocket: String
        /// The client's keep-alive timeout, and a closure that records each run of its handler.
        var keepAlive: (timeout: Duration, recordRun: @Sendable () -> Void)?
    }

    private let client: Client
    private let socket: CInt
    private let slot: Slot

    init(_ settings: Settings, socket: CInt, slot: Slot) throws {
        self.socket = socket
        self.slot = slot
        var configuration = Client.Configuration(
            identifier: settings.identifier, socketPath: settings.supervisorSocket)
        configuration.driver = .manual
        configuration.reconnects = false
        configuration.requestTimeout = .seconds(60)
        var handlers = Client.Handlers()
        handlers.wake = { wake in
            Self.readAll(socket, slot, byTraffic: wake.reasons.contains(.socket))
            slot.stage = .running
        }
        handlers.prepareToSuspend = {
            // As in every client, so that packets that are there already need not wake it.
            Self.readAll(socket, slot, byTraffic: false)
            slot.stage = .waiting
            return []
        }
        handlers.suspendCancelled = { slot.stage = .running }
        client = try Client(configuration, handlers: handlers)
        _ = try client.handOver(socket, as: .voip)
        if let (timeout, recordRun) = settings.keepAlive {
            let now = monotonicNow()
            slot.pointer.pointee.timeout = timeout.wholeNanoseconds
            slot.pointer.pointee.began_at = now
            slot.pointer.pointee.ran_at = now
            try client.setKeepAliveTimeout(timeout, handler: recordRun)
        }
        slot.pointer.pointee.pid = getpid()
        slot.stage = .running
        try client.enterBackground()
    }

    /// The handler's work. The measurement ends with the first read.
    private static func readAll(_ socket: CInt, _ slot: Slot, byTraffic: Bool) {
        let first = cfloors_receive(socket, slot.pointer, CInt(MSG_DONTWAIT))
        if byTraffic {
            slot.pointer.pointee.wakes += 1
            if first == 0 { slot.pointer.pointee.empty_wakes += 1 }
        }
        guard first == 1 else { return }
        while cfloors_receive(socket, slot.pointer, CInt(MSG_DONTWAIT)) == 1 {}
    }

    /// Serves until the connection ends.
    func run() throws {
        var waiting = [
            pollfd(fd: client.fileDescriptor, events: Int16(POLLIN), revents: 0),
            pollfd(fd: socket, events: Int16(POLLIN), revents: 0),
        ]
        while true {
            // A client that is about to sleep leaves its socket to the supervisor.
            waiting[1].fd = slot.stage == .running ? socket : -1
            guard poll(&waiting, 2, -1) >= 0 || errno == EINTR else { throw LoadError(failed: "poll") }
            if waiting[0].revents != 0 { try client.processPending() }
            if waiting[1].revents != 0, slot.stage == .running {
                if cfloors_receive(socket, slot.pointer, CInt(MSG_DONTWAIT)) < 0 { return }
            }
        }
    }
}

/// Options of a population.
struct SleeperOptions {
    /// Every other sleeper runs under this uid.
    var secondUser: uid_t?
    /// Each sleeper sets a keep-alive timeout in this range, in milliseconds.
    var keepAlive: (Int, Int)?
    /// Only every other sleeper sets one, beginning with the second.
    var keepsHalfAlive = false

    func hasKeepAlive(_ index: Int) -> Bool { keepAlive != nil && (!keepsHalfAlive || index % 2 == 1) }
    /// The seed of the timeouts.
    var seed: UInt64 = 1
}

/// The process that all sleepers of a population are forked from: they share its pages, so that a thousand
/// fit.
///
/// Inherits the shared memory as descriptor 3 and a lifetime pipe as descriptor 4.
struct SleeperZygote {
    private let first: Int
    private let count: Int
    private let supervisorSocket: String
    private let transport: Transport
    private let callPlan: CallPlan
    private let options: SleeperOptions
    private let sharedMemory: SharedMemory

    static func arguments(
        first: Int, count: Int, slots: Int, supervisorSocket: String, callers: Callers,
        options: SleeperOptions
    ) -> [String] {
        [
            "\(first)", "\(count)", "\(slots)", supervisorSocket, callers.transport.rawValue,
            callers.callPlan.argument,
            options.secondUser.map { "\($0)" } ?? "-", options.keepAlive.map { "\($0.0) \($0.1)" } ?? "-",
            options.keepsHalfAlive ? "half" : "all", "\(options.seed)",
        ]
    }

    init(_ arguments: [String]) throws(LoadError) {
        guard arguments.count == 10, let first = Int(arguments[0]), let count = Int(arguments[1]),
            let slots = Int(arguments[2]), let transport = Transport(rawValue: arguments[4]),
            let seed = UInt64(arguments[9])
        else { throw .missing("arguments") }
        self.first = first
        self.count = count
        supervisorSocket = arguments[3]
        self.transport = transport
        callPlan = CallPlan(argument: arguments[5])
        let range = arguments[7].split(separator: " ").compactMap { Int($0) }
        options = SleeperOptions(
            secondUser: uid_t(arguments[6]), keepAlive: range.count == 2 ? (range[0], range[1]) : nil,
            keepsHalfAlive: arguments[8] == "half", seed: seed)
        sharedMemory = try SharedMemory(inherited: 3, slots: slots)
    }

    func run() throws {
        cfloors_ignore_children()
        for index in first..<first + count {
            let child = cfloors_fork()
            guard child >= 0 else { throw LoadError(failed: "fork") }
            if child == 0 { becomeSleeper(index) }
        }
        waitForEnd(4)
    }

    private func becomeSleeper(_ index: Int) -> Never {
        do {
            signal(SIGTERM, SIG_DFL)
            let parent = getppid()
            if let secondUser = options.secondUser, index % 2 == 1 {
                guard setgid(secondUser) == 0, setuid(secondUser) == 0 else {
                    throw LoadError(failed: "setuid")
                }
                // A process that changes its user loses the parent-death signal and must ask for it again.
                guard cfloors_die_with(parent) != 0 else { _exit(1) }
            }
            var kept: [CInt] = [3]
            cfloors_close_all_but(&kept, 1)
            let socket = try transport.connect(to: callPlan[index], as: index)
            var settings = Sleeper.Settings(
                identifier: "org.nightbell.load.s\(index)", supervisorSocket: supervisorSocket)
            if options.hasKeepAlive(index), let (shortest, longest) = options.keepAlive {
                var random = SplitMix64(seed: options.seed &* 1_000_003 &+ UInt64(index))
                let timeout = Int.random(in: shortest...longest, using: &random)
                settings.keepAlive = (.milliseconds(timeout), sharedMemory.runRecorder(sharedMemory[index]))
            }
            let sleeper = try Sleeper(settings, socket: socket, slot: sharedMemory[index])
            try sleeper.run()
        } catch {
            logError("sleeper \(index): \(error)")
        }
        sharedMemory[index].stage = .failed
        _exit(1)
    }
}

/// Blocks until the pipe ends or a signal asks this process to end.
func waitForEnd(_ descriptor: CInt) {
    cfloors_catch_interrupts()
    var waiting = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
    while cfloors_interrupted() == 0, poll(&waiting, 1, -1) < 0, errno == EINTR {}
}
