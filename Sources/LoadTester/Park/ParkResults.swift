import Presentation

/// The results of a `park` run.
struct ParkResults {
    struct Population {
        var sockets: Int
        var figures: ProcessFigures
        /// The keeper, which holds the state that the worker must not lose; the floor has none.
        var keeper: ProcessFigures?
        var slab: Int
    }

    struct Idle {
        var contextSwitches: Int
        var processorTicks: Int

        var json: JSON {
            [
                "context_switches": .integer(Int64(contextSwitches)),
                "cpu_ticks": .integer(Int64(processorTicks)),
            ]
        }
    }

    let settings: ParkRun.Settings
    /// Before any client connects.
    var base: ProcessFigures?
    var populations: [Population] = []
    var floor: [Population] = []
    var afterClients: ProcessFigures?
    var idle: Idle?
    var floorIdle: Idle?
    var machine = Machine()

    init(settings: ParkRun.Settings) {
        self.settings = settings
    }

    /// Growth of the process's memory from one population to another, for each additional socket; nil if it
    /// shrank, because something else was measured then.
    private func growth(
        _ populations: [Population], _ from: Int, _ to: Int,
        of process: (Population) -> ProcessFigures? = { $0.figures }
    ) -> Double? {
        guard populations.count > to, let before = process(populations[from])?.writtenBytes,
            let after = process(populations[to])?.writtenBytes
        else { return nil }
        let sockets = populations[to].sockets - populations[from].sockets
        return Self.share(of: after - before, sockets)
    }

    private static func share(of bytes: Int, _ count: Int) -> Double? {
        bytes < 0 || count <= 0 ? nil : Double(bytes) / Double(count)
    }

    /// nil where the floor has none: it keeps nothing of a socket outside the kernel.
    private static func ratio(_ ours: Double?, _ floor: Double?) -> Double? {
        guard let ours, let floor, floor > 0 else { return nil }
        return ours / floor
    }

    var bytesPerSocket: Double? { growth(populations, 1, 2) }
    var bytesPerFirstSocket: Double? { growth(populations, 0, 1) }
    var keeperBytesPerSocket: Double? { growth(populations, 1, 2, of: \.keeper) }

    var bytesPerClient: Double? {
        guard let afterClients, let before = populations.last?.figures else { return nil }
        return Self.share(of: afterClients.writtenBytes - before.writtenBytes, settings.idleClients)
    }

    /// Growth of the kernel's slab memory, which includes the sockets themselves.
    private func kernelBytes(_ populations: [Population]) -> Double? {
        guard populations.count > 2 else { return nil }
        return Self.share(
            of: populations[2].slab - populations[1].slab, populations[2].sockets - populations[1].sockets)
    }

    var baseMebibytes: Double? { base.map { Double($0.residentBytes) / 1_048_576 } }
}

extension ParkResults: Reportable {
    var command: String { "park" }

    var json: JSON {
        [
            "command": "park",
            "suspend": .string(settings.suspension.rawValue),
            "transport": .string(settings.transport.rawValue),
            "sockets": .integer(Int64(settings.sockets)),
            "clients": .integer(Int64(settings.clients)),
            "bytes_per_socket": .rounded(bytesPerSocket, digits: 1),
            "bytes_per_socket_at_first": .rounded(bytesPerFirstSocket, digits: 1),
            "keeper_bytes_per_socket": .rounded(keeperBytesPerSocket, digits: 1),
            "bytes_per_client": .rounded(bytesPerClient, digits: 1),
            "kernel_bytes_per_socket": .rounded(kernelBytes(populations), digits: 0),
            "base_rss_mib": .rounded(baseMebibytes),
            "idle": idle?.json ?? .null,
            "floor": [
                "bytes_per_socket": .rounded(growth(floor, 1, 2), digits: 1),
                "kernel_bytes_per_socket": .rounded(kernelBytes(floor), digits: 0),
                "idle": floorIdle?.json ?? .null,
            ],
            "ratio": [
                "bytes_per_socket": .rounded(Self.ratio(bytesPerSocket, growth(floor, 1, 2)), digits: 2),
                "kernel_bytes_per_socket": .rounded(
                    Self.ratio(kernelBytes(populations), kernelBytes(floor)), digits: 2),
            ],
            "machine": machine.json,
        ]
    }

    var tables: [ReportTable] {
        var memory = ReportTable(title: "Memory", columns: ["", "Nightbell", "floor"])
        let first = "bytes a socket, the first \(settings.firstSockets)"
        func figure(_ value: Double?, digits: Int = 1) -> String {
            value.map { LoadTester.figure($0, digits: digits) } ?? "–"
        }
        func count(_ value: Int?) -> String { value.map { "\($0)" } ?? "–" }
        memory.rows = [
            [
                "bytes a socket, up to \(settings.sockets)", figure(bytesPerSocket),
                figure(growth(floor, 1, 2)),
            ],
            [first, figure(bytesPerFirstSocket), figure(growth(floor, 0, 1))],
            [
                "kernel, bytes a socket", figure(kernelBytes(populations), digits: 0),
                figure(kernelBytes(floor), digits: 0),
            ],
            ["the keeper's, bytes a socket", figure(keeperBytesPerSocket)],
            ["bytes a client", figure(bytesPerClient)],
            ["base, MiB resident", figure(baseMebibytes, digits: 2)],
        ]
        memory.note =
            "growth of what the process has written (Pss_Anon and Pss_Shmem); the kernel's is that of all slabs of the machine, both ends "
            + "of the sockets included"
        let idleRows = ReportTable(
            title: "Idle for \(settings.idleSeconds) s with \(settings.sockets) parked",
            columns: ["", "Nightbell", "floor"],
            rows: [
                ["context switches", count(idle?.contextSwitches), count(floorIdle?.contextSwitches)],
                ["CPU ticks", count(idle?.processorTicks), count(floorIdle?.processorTicks)],
            ])
        return [memory, idleRows]
    }

    var verdicts: [Verdict] {
        [
            Verdict("bytes a socket", bytesPerSocket, atMost: 80),
            Verdict("the keeper's bytes a socket", keeperBytesPerSocket, atMost: 60),
            Verdict("bytes a socket, the first \(settings.firstSockets)", bytesPerFirstSocket, atMost: 256),
            Verdict("bytes a client", bytesPerClient, atMost: 2_048),
            Verdict("base, MiB", baseMebibytes, atMost: 12),
            Verdict("context switches while idle", idle.map { Double($0.contextSwitches) }, atMost: 0),
            Verdict("CPU ticks while idle", idle.map { Double($0.processorTicks) }, atMost: 0),
        ]
    }

    var charts: [Chart] {
        func series(_ name: String, _ populations: [Population]) -> Chart.Series {
            .init(
                name: name,
                points: populations.map {
                    .init(x: Double($0.sockets), y: Double($0.figures.writtenBytes) / 1_048_576)
                })
        }
        return [
            Chart(
                title: "Memory against population", horizontal: "parked sockets", vertical: "MiB",
                style: .lines,
                series: [series("Nightbell", populations), series("floor", floor)]),
            Chart(
                title: "CPU against population", horizontal: "parked sockets", vertical: "CPU ticks so far",
                style: .lines,
                series: [
                    .init(
                        name: "Nightbell",
                        points: populations.map {
                            .init(x: Double($0.sockets), y: Double($0.figures.processorTicks))
                        })
                ]),
        ]
    }
}
