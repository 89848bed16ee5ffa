import EdgeTestSupport
import LinuxSystem
import NightbellWire
import Testing

@Suite(.serialized) struct MemoryTests {
    /// This many clients with a thousand sockets each.
    private func crowd(
        of count: Int, _ daemon: DaemonProcess, _ device: borrowing EventDescriptor
    ) throws -> [WireClient] {
        try (0..<count).map { number in
            let client = try WireClient(path: daemon.socketPath)
            try client.hello("org.example.crowd\(number)", modes: [.externalAccessory])
            for _ in 0..<5 {
                let adoptions = try client.handOverAny(
                    Array(repeating: device.rawValue, count: 200), .device, name: "a name that takes room")
                #expect(adoptions.count == 200)
            }
            return client
        }
    }

    private func dismiss(_ clients: inout [WireClient], _ observer: WireClient) throws {
        clients.removeAll()
        let isEmpty = try eventually { try observer.status().sockets == 0 }
        #expect(isEmpty)
    }

    /// Many clients come and go. Their memory is given back to the kernel, not only to the allocator.
    @Test(.disabled(if: isSanitized, "a sanitizer keeps what was freed"))
    func memoryIsGivenBack() throws {
        let daemon = try DaemonProcess(suspension: "none")
        let observer = try WireClient(path: daemon.socketPath)
        let device = try EventDescriptor()
        // The first clients page in the program itself.
        var clients = try crowd(of: 1, daemon, device)
        try dismiss(&clients, observer)
        let before = try observer.status().memoryBytes
        clients = try crowd(of: 12, daemon, device)
        #expect(try observer.status().sockets == 12_000)
        let during = try observer.status().memoryBytes
        try dismiss(&clients, observer)
        let needed = during - before
        #expect(needed > 1 << 19, "or this test shows nothing")
        // At the end of the turn in which they went.
        var after = during
        let isGivenBack = try eventually {
            after = try observer.status().memoryBytes
            return after < before + needed / 2
        }
        #expect(isGivenBack)
        print("memory before \(before >> 10) KiB, during \(during >> 10) KiB, after \(after >> 10) KiB")
    }
}
