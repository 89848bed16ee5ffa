import Glibc
import NightbellSupervisor

// Says back what it is told, with the number of bytes so far. A connection that says nothing costs fewer than 300 bytes,
// and no thread, task or buffer. `echo-server 7007`, then `nc 127.0.0.1 7007`.

let listener = try listen(onLoopback: CommandLine.arguments.dropFirst().first.flatMap { UInt16($0) } ?? 7007)
let supervisor = try EmbeddedSupervisor()
_ = try supervisor.park(listener)  // whatever can be watched can be parked
print("listening on 127.0.0.1:\(port(of: listener))")
fflush(nil)  // for whoever reads it from a pipe

for await event in supervisor.events {
    guard let claimed = try? supervisor.claim(event.token) else { continue }
    if claimed.descriptor == listener {
        let connection = accept(listener, nil, nil)
        if connection >= 0 { park(connection, bytesSoFar: 0) }
        _ = try supervisor.park(listener)  // tells at once if there are more
    } else {
        let bytesSoFar = claimed.state.reduce(0) { $0 << 8 | UInt64($1) }
        echo(claimed.descriptor, bytesSoFar)
    }
}

func echo(_ connection: Int32, _ bytesSoFar: UInt64) {
    var bytes = [UInt8](repeating: 0, count: 16_384)
    let count = recv(connection, &bytes, bytes.count, Int32(MSG_DONTWAIT))
    guard count > 0 else { return _ = close(connection) }  // the end, or an error
    let bytesSoFar = bytesSoFar + UInt64(count)
    let answer = Array("\(bytesSoFar): ".utf8) + bytes[..<count]
    send(connection, answer, answer.count, Int32(MSG_NOSIGNAL))
    park(connection, bytesSoFar: bytesSoFar)
}

func park(_ connection: Int32, bytesSoFar: UInt64) {
    let state = (0..<8).reversed().map { UInt8(truncatingIfNeeded: bytesSoFar >> (8 * $0)) }
    do {
        _ = try supervisor.park(connection, profile: .tcp(), state: state)
    } catch {
        print("cannot park: \(error)")
        close(connection)
    }
}
