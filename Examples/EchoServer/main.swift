import Glibc
import NightbellParking

// Echoes its input, with the number of bytes so far. An idle connection costs fewer than 300 bytes,
// and no thread, task or buffer. `echo-server 7007`, then `nc 127.0.0.1 7007`.

let arguments = CommandLine.arguments.dropFirst()
guard arguments.count <= 1, let port = UInt16(arguments.first ?? "7007") else {
    end("usage: echo-server [PORT]", code: 64)  // EX_USAGE
}
var listener = Listener(port: port)
let supervisor = try EmbeddedSupervisor()
let profile = try ParkingProfile.tcp()  // one for all
_ = try supervisor.park(listener.descriptor)  // any pollable descriptor can be parked
print("listening on 127.0.0.1:\(listener.port)")
fflush(nil)  // for a reader on a pipe

for await event in supervisor.events {
    guard let claimed = try? supervisor.claim(event.token) else { continue }
    if claimed.descriptor == listener.descriptor {
        if let connection = listener.accept() { park(connection, bytesSoFar: 0) }
        _ = try supervisor.park(listener.descriptor)  // fires at once if there are more
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
    // A peer that sends more than it reads is closed: waiting for one would delay all others.
    let sent = send(connection, answer, answer.count, Int32(MSG_NOSIGNAL | MSG_DONTWAIT))
    guard sent == answer.count else { return _ = close(connection) }
    park(connection, bytesSoFar: bytesSoFar)
}

func park(_ connection: Int32, bytesSoFar: UInt64) {
    let state = (0..<8).reversed().map { UInt8(truncatingIfNeeded: bytesSoFar >> (8 * $0)) }
    do {
        _ = try supervisor.park(connection, profile: profile, state: state)
    } catch {
        print("cannot park: \(error)")
        close(connection)
    }
}
