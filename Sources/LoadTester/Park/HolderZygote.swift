import CFloors
import Glibc
import Nightbell

/// The process that clients with many sockets are forked from. Nothing calls these clients; woken by request,
/// each hands over as many sockets as it is asked for.
///
/// Inherits the shared memory as descriptor 3 and a lifetime pipe as descriptor 4. The order in the shared
/// memory is the number of sockets that each client must have.
struct HolderZygote {
    private let first: Int
    private let count: Int
    private let transport: Transport
    private let supervisorSocket: String
    private let sharedMemory: SharedMemory

    static func arguments(
        first: Int, count: Int, slots: Int, transport: Transport, supervisorSocket: String
    ) -> [String] {
        ["\(first)", "\(count)", "\(slots)", transport.rawValue, supervisorSocket]
    }

    static func identifier(_ index: Int) -> String { "org.nightbell.load.h\(index)" }

    init(_ arguments: [String]) throws(LoadError) {
        guard arguments.count == 5, let first = Int(arguments[0]), let count = Int(arguments[1]),
            let slots = Int(arguments[2]), let transport = Transport(rawValue: arguments[3])
        else { throw .missing("arguments") }
        self.first = first
        self.count = count
        self.transport = transport
        supervisorSocket = arguments[4]
        sharedMemory = try SharedMemory(inherited: 3, slots: slots)
    }

    func run() throws {
        cfloors_ignore_children()
        _ = cfloors_raise_descriptor_limit()
        for index in first..<first + count {
            let child = cfloors_fork()
            guard child >= 0 else { throw LoadError(failed: "fork") }
            if child == 0 { becomeHolder(index) }
        }
        waitForEnd(4)
    }

    private func becomeHolder(_ index: Int) -> Never {
        do {
            signal(SIGTERM, SIG_DFL)
            let holder = try Holder(
                identifier: Self.identifier(index), supervisorSocket: supervisorSocket, transport: transport)
            sharedMemory[index].pointer.pointee.pid = getpid()
            sharedMemory[index].stage = .running
            try holder.run(sharedMemory, sharedMemory[index])
        } catch {
            logError("holder \(index): \(error)")
        }
        sharedMemory[index].stage = .failed
        _exit(1)
    }
}

/// A client with many sockets.
private final class Holder {
    private let client: Client
    private let transport: Transport
    private var sockets = 0

    init(identifier: String, supervisorSocket: String, transport: Transport) throws {
        self.transport = transport
        var configuration = Client.Configuration(identifier: identifier, socketPath: supervisorSocket)
        configuration.driver = .manual
        configuration.reconnects = false
        configuration.requestTimeout = .seconds(60)
        client = try Client(configuration)
        try client.enterBackground()
    }

    func run(_ sharedMemory: SharedMemory, _ slot: Slot) throws {
        var waiting = pollfd(fd: client.fileDescriptor, events: Int16(POLLIN), revents: 0)
        while true {
            let wanted = Int(sharedMemory.order)
            if sockets < wanted {
                let task = try client.beginBackgroundTask("hand over")
                try handOver(wanted - sockets)
                slot.pointer.pointee.received = UInt64(sockets)
                try client.end(task)
            }
            guard poll(&waiting, 1, -1) >= 0 || errno == EINTR else { throw LoadError(failed: "poll") }
            try client.processPending()
        }
    }

    /// Hands over both ends of each pair: the supervisor cannot tell, and it takes half as many descriptors.
    private func handOver(_ count: Int) throws {
        var offers: [Client.SocketToPark] = []
        while offers.count < count {
            let (first, second) = try transport.pair()
            offers += [.init(first, as: .voip), .init(second, as: .voip)]
        }
        for result in try client.handOver(offers) { _ = try result.get() }
        sockets += offers.count
    }
}
