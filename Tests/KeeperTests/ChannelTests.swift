import EdgeTestSupport
import Glibc
import Keeper
import LinuxSystem
import Testing

@Suite("The channel and the store") struct ChannelTests {
    private static let key = RecordKey(kind: 20, id: 0x0102_0304_0506_0708)

    private static let items: [ChannelItem] = [
        .put(key, record: [1, 2, 3], hasDescriptor: false), .update(key, record: []), .remove(key), .ready,
        .quiesced(7), .failed(code: -5, "nō"), .upgradeWanted, .reloaded, .stop, .reload,
        .quiesce(8), .act, .cancelUpgrade("why"),
    ]

    @Test("Items are decoded as encoded, to the last byte")
    func roundTrip() throws {
        var packet = ChannelPacket()
        for item in Self.items { packet.append(item) }
        packet.append(.put(Self.key, record: [9], hasDescriptor: true), descriptor: 0)
        let items = try ChannelPacket.items(in: packet.bytes)
        #expect(items == Self.items + [.put(Self.key, record: [9], hasDescriptor: true)])
        for length in 0..<packet.bytes.count {
            // A part is no packet, unless it ends with an item.
            guard let part = try? ChannelPacket.items(in: Array(packet.bytes.prefix(length))) else {
                continue
            }
            #expect(part == Array(items.prefix(part.count)))
        }
        #expect(throws: ChannelError.wrongLength) { try ChannelPacket.items(in: packet.bytes + [0]) }
    }

    @Test("Packets of another version are refused")
    func unknown() {
        #expect(throws: ChannelError.version(2)) { try ChannelPacket.items(in: [2, 0, 0, 0]) }
        var bytes: [UInt8] = [1, 0, 0, 0, 99]
        bytes += [UInt8](repeating: 0, count: 15)
        #expect(throws: ChannelError.unknownItem(99)) { try ChannelPacket.items(in: bytes) }
        var tooLong: [UInt8] = [1, 0, 0, 0, 1, 20, 0, 0, 255, 255, 255, 255]
        tooLong += [UInt8](repeating: 0, count: 8)
        #expect(throws: ChannelError.wrongLength) { try ChannelPacket.items(in: tooLong) }
    }

    @Test("A full queue blocks, and nothing is lost or out of order")
    func fullQueue() throws {
        let pair = try SeqPacketSocket.pair()
        try pair.separate { keeper, worker in
            let count = 400
            let worker = worker.takeDescriptor().take()
            let writing = OwnThread {
                let link = KeeperLink(SeqPacketSocket(adopting: OwnedDescriptor(adopting: worker)))
                for number in 0..<count {
                    // Much more than the queue holds.
                    link.put(
                        RecordKey(kind: 20, id: UInt64(number)),
                        [UInt8](repeating: UInt8(truncatingIfNeeded: number), count: 5_000), descriptor: 0)
                    link.flush()
                }
                return !link.isBroken
            }
            var buffer = PacketBuffer(capacity: ChannelPacket.capacity)
            var store = RecordStore()
            while store.count < count {
                let number = store.count
                _ = Poll.wait(keeper.rawValue, for: .readable, timeoutMilliseconds: 10_000)
                guard case .packet = try keeper.receive(into: &buffer) else { continue }
                for item in try ChannelPacket.items(in: buffer.bytes) {
                    #expect(try store.apply(item, &buffer) { $0.close() } == nil)
                }
                let key = RecordKey(kind: 20, id: UInt64(number))
                #expect(store.record(key)?.first == UInt8(truncatingIfNeeded: number))
            }
            #expect(try writing.join())
            #expect(store.descriptorCount == count)
        }
    }

    @Test("Sockets adopted together go into one packet, even with the longest names")
    func oneForMany() throws {
        let pair = try SeqPacketSocket.pair()
        try pair.separate { keeper, worker in
            let link = KeeperLink(worker)
            let count = 250
            for number in 0..<count {
                // As long as that of a socket with the longest name.
                link.put(
                    RecordKey(kind: 20, id: UInt64(number)), [UInt8](repeating: 1, count: 96), descriptor: 0)
            }
            link.flush()
            var buffer = PacketBuffer(capacity: ChannelPacket.capacity)
            _ = try keeper.receive(into: &buffer)
            #expect(try ChannelPacket.items(in: buffer.bytes).count == count)
            #expect(buffer.descriptorCount == count)
            #expect(try keeper.receive(into: &buffer) == .wouldBlock)
        }
    }

    @Test("A worker does not wait for a keeper that is gone")
    func broken() throws {
        let pair = try SeqPacketSocket.pair()
        pair.separate { keeper, worker in
            let link = KeeperLink(worker)
            keeper.takeDescriptor().close()
            link.put(Self.key, [1])
            link.flush()
            #expect(link.isBroken)
            #expect(link.receive() == .end)
        }
    }

    @Test("The store survives as an image; other bytes are refused")
    func image() throws {
        var store = RecordStore()
        let file = try MemoryFile.create("test", [7])
        var replaced = isMissing(store.put(Self.key, [1, 2], try file.duplicate()))
        replaced = isMissing(store.put(RecordKey(kind: 1, id: 2), [])) && replaced
        #expect(replaced, "nothing was")
        let image = store.image()
        switch RecordStore(image: image) {
        case .some(var other):
            #expect(other.descriptors == store.descriptors && other.count == 2)
            #expect(other.record(Self.key) == [1, 2])
            // They are the same numbers, and must not be closed twice.
            switch other.removeValue(for: Self.key) {
            case .some(let kept): _ = kept.takeDescriptor()?.take()
            case .none: Issue.record("it is not there")
            }
        case .none:
            Issue.record("it cannot be read")
        }
        for length in 0..<image.count {
            if let part = RecordStore(image: Array(image.prefix(length))) { #expect(part.count < 2) }
        }
    }
}
