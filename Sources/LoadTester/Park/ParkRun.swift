import CFloors
import Glibc
import LinuxSystem
import Nightbell

/// A few clients with many sockets fall asleep, and stay idle.
struct ParkRun {
    struct Settings {
        var suspension: SuspensionMethod
        var transport: Transport
        var sockets: Int
        var firstSockets: Int
        /// Parked before anything is measured.
        var warmSockets: Int { 10 * clients }
        var clients: Int
        var idleClients: Int
        var idleSeconds: Int
    }

    let settings: Settings
    let runDirectory: RunDirectory

    func run() throws -> ParkResults {
        var results = ParkResults(settings: settings)
        let supervisor = try PrivateSupervisor(runDirectory, .init(suspension: settings.suspension))
        results.base = try ProcessFigures(supervisor.worker)

        let total = settings.clients + settings.idleClients
        let sharedMemory = try SharedMemory(slots: total)
        let pipe = try Pipe()
        try startClients(0..<settings.clients, supervisor, sharedMemory, pipe)
        for sockets in populations {
            try park(sockets, supervisor, sharedMemory)
            results.populations.append(try measure(supervisor, sockets: sockets))
        }
        runDirectory.progress.say(
            "\(settings.sockets) sockets parked; watching it do nothing for \(settings.idleSeconds) s")
        results.idle = try watchIdle(supervisor.worker)

        runDirectory.progress.say("starting \(settings.idleClients) more clients")
        // These clients park no sockets.
        sharedMemory.order = 0
        try startClients(settings.clients..<total, supervisor, sharedMemory, pipe)
        results.afterClients = try measure(supervisor, sockets: settings.sockets).figures
        supervisor.end()

        try measureFloor(&results)
        results.machine.finish()
        return results
    }

    /// The first sockets pay for code that never ran before and for buffers that all share.
    private var populations: [Int] { [settings.warmSockets, settings.firstSockets, settings.sockets] }

    private func startClients(
        _ range: Range<Int>, _ supervisor: PrivateSupervisor, _ sharedMemory: SharedMemory,
        _ pipe: borrowing Pipe
    ) throws {
        _ = try runDirectory.start(
            .holders,
            HolderZygote.arguments(
                first: range.lowerBound, count: range.count, slots: sharedMemory.count,
                transport: settings.transport,
                supervisorSocket: supervisor.socketPath),
            descriptors: [sharedMemory.descriptor.rawValue, pipe.reading.rawValue])
        try supervisor.waitUntilAsleep(range.upperBound)
    }

    /// Has the clients hand over sockets until they have `sockets` together, and fall asleep again.
    private func park(_ sockets: Int, _ supervisor: PrivateSupervisor, _ sharedMemory: SharedMemory) throws {
        runDirectory.progress.say("parking \(sockets) sockets")
        sharedMemory.order = UInt32(sockets / settings.clients)
        var administration = try Administration(socketPath: supervisor.socketPath)
        for index in 0..<settings.clients { try administration.wake(HolderZygote.identifier(index)) }
        try wait(for: "\(sockets) sockets to be handed over", atMost: .seconds(60), firstPause: 10_000_000) {
            try runDirectory.requireAllRunning()
            return try administration.status().sockets == sockets
        }
        try supervisor.waitUntilAsleep(settings.clients)
    }

    /// Measures once the supervisor has nothing left to do.
    private func measure(_ supervisor: PrivateSupervisor, sockets: Int) throws -> ParkResults.Population {
        try pause(nanoseconds: 200_000_000)
        return .init(
            sockets: sockets, figures: try ProcessFigures(supervisor.worker),
            keeper: try ProcessFigures(supervisor.process.id), slab: kernelSlabBytes())
    }

    private func watchIdle(_ pid: pid_t) throws -> ParkResults.Idle {
        let before = try ProcessFigures(pid)
        try pause(nanoseconds: Int64(settings.idleSeconds) * 1_000_000_000)
        let after = try ProcessFigures(pid)
        return .init(
            contextSwitches: after.contextSwitches - before.contextSwitches,
            processorTicks: after.processorTicks - before.processorTicks)
    }

    private func measureFloor(_ results: inout ParkResults) throws {
        runDirectory.progress.say("the same with the floor")
        let floor = try FloorHolder(runDirectory, expected: settings.sockets)
        var descriptors: [CInt] = []
        defer { for descriptor in descriptors { close(descriptor) } }
        for sockets in populations {
            let first = descriptors.count
            while descriptors.count < sockets {
                let (one, other) = try settings.transport.pair()
                descriptors += [one, other]
            }
            let more = Array(descriptors[first...])
            let code = cfloors_hand_over(floor.socket.rawValue, more, more.count, 1, "x", 1, nil)
            guard code == 0 else { throw LoadError("hand over to the floor", code: code) }
            try wait(for: "the floor to park", atMost: .seconds(20), firstPause: 10_000_000) {
                (ProcFS.openDescriptors(floor.process.id) ?? 0) >= sockets
            }
            try pause(nanoseconds: 50_000_000)
            results.floor.append(
                .init(
                    sockets: sockets, figures: try ProcessFigures(floor.process.id), slab: kernelSlabBytes()))
        }
        results.floorIdle = try watchIdle(floor.process.id)
        floor.end()
    }
}
