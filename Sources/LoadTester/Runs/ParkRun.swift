import CFloors
import Descriptors
import Glibc
import Nightbell

/// Few clients with many sockets fall asleep, and nothing happens.
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
    let bench: Workbench

    func run() throws -> ParkResults {
        var results = ParkResults(settings: settings)
        let supervisor = try PrivateSupervisor(bench, .init(suspension: settings.suspension))
        results.base = try ProcessFigures(supervisor.worker)

        let total = settings.clients + settings.idleClients
        let area = try SharedArea(slots: total)
        let pipe = try Pipe()
        try startClients(0..<settings.clients, supervisor, area, pipe)
        for sockets in populations {
            try park(sockets, supervisor, area)
            results.populations.append(try look(supervisor, sockets: sockets))
        }
        bench.progress.say(
            "\(settings.sockets) sockets parked; watching it do nothing for \(settings.idleSeconds) s")
        results.idle = try watchIdle(supervisor.worker)

        bench.progress.say("starting \(settings.idleClients) more clients")
        // They are asked for no sockets.
        area.order = 0
        try startClients(settings.clients..<total, supervisor, area, pipe)
        results.afterClients = try look(supervisor, sockets: settings.sockets).figures
        supervisor.end()

        try measureFloor(&results)
        results.machine.finish()
        return results
    }

    /// The first few pay for code that was never run and for buffers that are then there for all.
    private var populations: [Int] { [settings.warmSockets, settings.firstSockets, settings.sockets] }

    private func startClients(
        _ range: Range<Int>, _ supervisor: PrivateSupervisor, _ area: SharedArea, _ pipe: borrowing Pipe
    ) throws {
        _ = try bench.start(
            .holders,
            HolderNest.arguments(
                first: range.lowerBound, count: range.count, slots: area.count, transport: settings.transport,
                supervisorSocket: supervisor.socketPath),
            descriptors: [area.descriptor.rawValue, pipe.reading.rawValue])
        try supervisor.waitUntilAsleep(range.upperBound)
    }

    /// Has the clients hand over until they have so many together, and fall asleep again.
    private func park(_ sockets: Int, _ supervisor: PrivateSupervisor, _ area: SharedArea) throws {
        bench.progress.say("parking \(sockets) sockets")
        area.order = UInt32(sockets / settings.clients)
        var administration = try Administration(socketPath: supervisor.socketPath)
        for index in 0..<settings.clients { try administration.wake(HolderNest.identifier(index)) }
        try wait(for: "\(sockets) sockets to be handed over", atMost: .seconds(60), firstPause: 10_000_000) {
            try bench.requireAllRunning()
            return try administration.status().sockets == sockets
        }
        try supervisor.waitUntilAsleep(settings.clients)
    }

    /// Once the supervisor has nothing left to do.
    private func look(_ supervisor: PrivateSupervisor, sockets: Int) throws -> ParkResults.Population {
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
        bench.progress.say("the same with the floor")
        let floor = try FloorHolder(bench, expected: settings.sockets)
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
