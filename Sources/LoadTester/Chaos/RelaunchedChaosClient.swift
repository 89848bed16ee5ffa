import CFloors
import Glibc
import Nightbell

/// A client of a chaos run that the supervisor has launched: it continues where its last process ended.
enum RelaunchedChaosClient {
    static func run(_ arguments: [String]) throws {
        guard arguments.count == 5, let index = Int(arguments[0]), let clients = Int(arguments[1]),
            let each = Int(arguments[2])
        else { throw LoadError.missing("arguments") }
        // Its parent is one of many workers, so it cannot end with its parent; stopped or frozen it would
        // notice nothing.
        let lifeline = open(arguments[4], O_RDONLY | O_NONBLOCK | O_CLOEXEC)
        guard lifeline >= 0, cfloors_die_with_pipe(lifeline) != 0 else {
            throw LoadError.missing("the harness has ended")
        }
        let memory = open(arguments[3], O_RDWR | O_CLOEXEC)
        guard memory >= 0 else { throw LoadError(failed: "open \(arguments[3])") }
        let sharedMemory = try ChaosSharedMemory(clients: clients, socketsPerClient: each, inherited: memory)
        let supervisor = variable("NIGHTBELL_SOCKET") ?? ""
        let first = index * each
        var sockets = [CInt](repeating: -1, count: each)
        for (place, name) in (variable("LISTEN_FDNAMES") ?? "").split(separator: ":").enumerated() {
            guard let number = Int(name), sockets.indices.contains(number - first) else { continue }
            sockets[number - first] = CInt(3 + place)
        }
        do {
            guard !sockets.contains(-1) else { throw LoadError.missing("a socket of client \(index)") }
            let client = try ChaosClient(
                index, sockets, sharedMemory, supervisorSocket: supervisor, isRelaunched: true)
            try client.run()
        } catch {
            // The harness may have ended.
            sharedMemory[index, .connectionsLost] += 1
            throw error
        }
    }

    private static func variable(_ name: String) -> String? { getenv(name).map { String(cString: $0) } }
}
