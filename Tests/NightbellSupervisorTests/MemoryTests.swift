import Descriptors
import EdgeTestSupport
import Foundation
import NightbellWire
import Testing

@Suite(.serialized) struct MemoryTests {
    /// A crowd comes and goes. What it needed is given back, not only to the allocator.
    @Test func memoryIsGivenBack() throws {
        let daemon = try DaemonProcess(suspension: "none")
        let observer = try WireClient(path: daemon.socketPath)
        let device = try EventDescriptor()
        let before = try observer.status().memoryBytes
        var clients: [WireClient] = []
        for number in 0..<12 {
            let client = try WireClient(path: daemon.socketPath)
            try client.hello("org.example.crowd\(number)")
            for _ in 0..<5 {
                let adoptions = try client.handOverAny(
                    Array(repeating: device.rawValue, count: 200), .device, name: "a name that takes room")
                #expect(adoptions.count == 200)
            }
            clients.append(client)
        }
        #expect(try observer.status().sockets == 12_000)
        let during = try observer.status().memoryBytes
        clients.removeAll()
        let isEmpty = try eventually { try observer.status().sockets == 0 }
        #expect(isEmpty)
        let after = try observer.status().memoryBytes
        print("memory before \(before >> 10) KiB, during \(during >> 10) KiB, after \(after >> 10) KiB")
        let needed = during - before
        #expect(needed > 2 << 20, "or this test shows nothing")
        #expect(after < before + needed / 2)
    }
}
