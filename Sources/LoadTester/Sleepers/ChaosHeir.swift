import CFloors
import Glibc
import Nightbell

/// A client of a chaos run that the supervisor has launched: it goes on where its last process was.
enum ChaosHeir {
    static func run(_ arguments: [String]) throws {
        guard arguments.count == 5, let index = Int(arguments[0]), let clients = Int(arguments[1]),
            let each = Int(arguments[2])
        else { throw LoadError.missing("arguments") }
        // It is the child of a worker, of which there are many; stopped or frozen it would not notice anything.
        let lifeline = open(arguments[4], O_RDONLY | O_NONBLOCK | O_CLOEXEC)
        guard lifeline >= 0, cfloors_die_with_pipe(lifeline) != 0 else {
            throw LoadError.missing("the harness has ended")
        }
        let memory = open(arguments[3], O_RDWR | O_CLOEXEC)
        guard memory >= 0 else { throw LoadError(failed: "open \(arguments[3])") }
        let area = try ChaosArea(clients: clients, socketsPerClient: each, inherited: memory)
        let supervisor = variable("NIGHTBELL_SOCKET") ?? ""
        let first = index * each
        var sockets = [CInt](repeating: -1, count: each)
        for (place, name) in (variable("LISTEN_FDNAMES") ?? "").split(separator: ":").enumerated() {
            guard let number = Int(name), sockets.indices.contains(number - first) else { continue }
            sockets[number - first] = CInt(3 + place)
        }
        do {
            guard !sockets.contains(-1) else { throw LoadError.missing("a socket of client \(index)") }
            let client = try ChaosClient(index, sockets, area, supervisorSocket: supervisor, isHeir: true)
            try client.run()
        } catch {
            // Its harness may be at its end.
            area[index, .connectionsLost] += 1
            throw error
        }
    }

    private static func variable(_ name: String) -> String? { getenv(name).map { String(cString: $0) } }
}
