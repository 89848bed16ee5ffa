import CLinux
import EdgeTestSupport
import Glibc
import LinuxSystem
import Testing

@Suite struct SeqPacketTests {
    @Test func packetsStayApart() throws {
        let pair = try SeqPacketSocket.pair()
        var buffer = PacketBuffer()
        #expect(try pair.second.receive(into: &buffer) == .wouldBlock)
        #expect(try pair.first.send([1, 2, 3]))
        #expect(try pair.first.send([4]))
        #expect(
            try pair.second.receive(into: &buffer)
                == .packet(length: 3, truncated: false, controlTruncated: false))
        #expect(buffer.bytes == [1, 2, 3])
        #expect(
            try pair.second.receive(into: &buffer)
                == .packet(length: 1, truncated: false, controlTruncated: false))
        #expect(buffer.bytes == [4])
        #expect(try pair.second.receive(into: &buffer) == .wouldBlock)
    }

    @Test func aPacketTooLongIsReported() throws {
        let pair = try SeqPacketSocket.pair()
        var buffer = PacketBuffer(capacity: 4)
        #expect(try pair.first.send([1, 2, 3, 4, 5]))
        #expect(
            try pair.second.receive(into: &buffer)
                == .packet(length: 4, truncated: true, controlTruncated: false))
        #expect(buffer.bytes == [1, 2, 3, 4])
    }

    @Test func aFullQueueIsNoError() throws {
        let pair = try SeqPacketSocket.pair()
        var sent = 0
        while try pair.first.send([UInt8](repeating: 7, count: 10_000)) { sent += 1 }
        #expect(sent > 0)
        var buffer = PacketBuffer()
        for _ in 0..<sent { #expect(try pair.second.receive(into: &buffer) != .wouldBlock) }
        #expect(try pair.second.receive(into: &buffer) == .wouldBlock)
    }

    @Test func theEndIsTheEnd() throws {
        try SeqPacketSocket.pair().separate { first, second throws in
            var buffer = PacketBuffer()
            #expect(try first.send([9]))
            _ = consume first
            #expect(hearsTheEnd(second.rawValue))
            #expect(
                try second.receive(into: &buffer)
                    == .packet(length: 1, truncated: false, controlTruncated: false))
            #expect(try second.receive(into: &buffer) == .end)
            let error = #expect(throws: SystemError.self) { try second.send([1]) }
            #expect(error?.code == EPIPE)
        }
    }

    /// The kernel returns `ECONNRESET` when the other end closes with unread packets.
    @Test func anEndWithUnreadPacketsIsAnEnd() throws {
        try SeqPacketSocket.pair().separate { first, second throws in
            var buffer = PacketBuffer()
            #expect(try second.send([9]))
            _ = consume first
            #expect(hearsTheEnd(second.rawValue))
            #expect(try second.receive(into: &buffer) == .end)
        }
    }

    /// It is returned before the packets that were sent ahead of the end.
    @Test func theLastPacketFollowsAReset() throws {
        try SeqPacketSocket.pair().separate { first, second throws in
            var buffer = PacketBuffer()
            #expect(try second.send([9]))
            #expect(try first.send([1]))
            _ = consume first
            #expect(hearsTheEnd(second.rawValue))
            #expect(
                try second.receive(into: &buffer)
                    == .packet(length: 1, truncated: false, controlTruncated: false))
            #expect(try second.receive(into: &buffer) == .end)
        }
    }

    @Test func descriptorsAreSeenBeforeTheyAreReceived() throws {
        let (reader, writer) = try makePipe()
        let number = writer.rawValue
        var seen: [Bool] = []
        try SeqPacketSocket.pair().separate { first, second throws in
            seen.append(first.nextPacketCarriesDescriptors())
            #expect(try second.send([1, 2]))
            #expect(try second.send([3], descriptors: [number, number]))
            seen.append(first.nextPacketCarriesDescriptors())
            var buffer = PacketBuffer()
            _ = try first.receive(into: &buffer)
            #expect(buffer.bytes == [1, 2])
            for _ in 0..<2 { seen.append(first.nextPacketCarriesDescriptors()) }
            _ = try first.receive(into: &buffer)
            #expect(buffer.bytes == [3])
            #expect(buffer.descriptorCount == 2)
        }
        #expect(seen == [false, false, true, true])
        withExtendedLifetime(reader) {}
    }

    /// For callers that do not read again after a reset.
    @Test func discardedInputCausesNoReset() throws {
        let (reader, writer) = try makePipe()
        let number = writer.rawValue
        try SeqPacketSocket.pair().separate { first, second throws in
            // An empty packet looks like the end, but is not.
            for length in [1, 0, 2, 0, 0, 3] {
                let bytes = [UInt8](repeating: 7, count: length)
                #expect(try second.send(bytes, descriptors: length == 2 ? [number] : []))
            }
            #expect(try first.send([1]))
            first.discardInput(of: geteuid())
            let error = #expect(throws: SystemError.self) { try second.send([5]) }
            #expect(error?.code == EPIPE)
            _ = consume first
            #expect(hearsTheEnd(second.rawValue))
            var bytes = [UInt8](repeating: 0, count: 8)
            #expect(recv(second.rawValue, &bytes, bytes.count, 0) == 1)
            #expect(recv(second.rawValue, &bytes, bytes.count, 0) == 0)
        }
        // Its descriptors are closed.
        writer.close()
        #expect(Poll.wait(reader.rawValue, for: .readable, timeoutMilliseconds: 10_000) == .hangUp)
    }

    @Test(arguments: [1, 2, 253]) func descriptorsArriveInOrder(count: Int) throws {
        let pair = try SeqPacketSocket.pair()
        let pipes = try (0..<count).map { _ in try makePipe() }
        #expect(try pair.first.send([1], descriptors: pipes.map(\.writer.rawValue)))
        var buffer = PacketBuffer()
        _ = try pair.second.receive(into: &buffer)
        #expect(buffer.descriptorCount == count)
        for (index, pipe) in pipes.enumerated() {
            let descriptor = try require(buffer.takeDescriptor())
            #expect(fcntl(descriptor.rawValue, F_GETFD) & FD_CLOEXEC != 0)
            #expect(write(descriptor.rawValue, "x", 1) == 1)
            #expect(Poll.now(pipe.reader.rawValue) == .readable, "number \(index)")
        }
        let isEmpty = isMissing(buffer.takeDescriptor())
        #expect(isEmpty)
    }

    @Test func moreDescriptorsThanAMessageHoldsAreRefused() throws {
        let pair = try SeqPacketSocket.pair()
        let error = #expect(throws: SystemError.self) {
            try pair.first.send([1], descriptors: Array(repeating: 0, count: 254))
        }
        #expect(error?.code == EINVAL)
    }

    @Test func untakenDescriptorsAreClosed() throws {
        let pair = try SeqPacketSocket.pair()
        let (reader, writer) = try makePipe()
        #expect(try pair.first.send([1], descriptors: [writer.rawValue, writer.rawValue]))
        writer.close()
        #expect(Poll.now(reader.rawValue) == [])
        var buffer = PacketBuffer()
        _ = try pair.second.receive(into: &buffer)
        // One is taken and closed here, the other one forgotten.
        buffer.takeDescriptor()?.close()
        #expect(Poll.now(reader.rawValue) == [])
        #expect(try pair.second.receive(into: &buffer) == .wouldBlock)
        #expect(Poll.wait(reader.rawValue, for: .readable, timeoutMilliseconds: 10_000) == .hangUp)
    }

    @Test func descriptorsAreClosedWithTheBuffer() throws {
        let pair = try SeqPacketSocket.pair()
        let (reader, writer) = try makePipe()
        #expect(try pair.first.send([1], descriptors: [writer.rawValue]))
        writer.close()
        do {
            var buffer = PacketBuffer()
            _ = try pair.second.receive(into: &buffer)
            #expect(Poll.now(reader.rawValue) == [])
        }
        #expect(Poll.wait(reader.rawValue, for: .readable, timeoutMilliseconds: 10_000) == .hangUp)
    }

    @Test func aPacketOfNothingButADescriptorIsNoEnd() throws {
        let pair = try SeqPacketSocket.pair()
        #expect(try pair.first.send([], descriptors: [pair.first.rawValue]))
        var buffer = PacketBuffer()
        #expect(
            try pair.second.receive(into: &buffer)
                == .packet(length: 0, truncated: false, controlTruncated: false))
        #expect(buffer.descriptorCount == 1)
    }

    @Test func anEmptyPacketIsNoEnd() throws {
        let pair = try SeqPacketSocket.pair()
        #expect(try pair.first.send([]))
        #expect(try pair.first.send([7]))
        var buffer = PacketBuffer()
        for length in 0...1 {
            #expect(
                try pair.second.receive(into: &buffer)
                    == .packet(length: length, truncated: false, controlTruncated: false))
        }
        #expect(try pair.second.receive(into: &buffer) == .wouldBlock)
    }

    /// In a process of its own, because the limit is the process's.
    @Test func descriptorsWithoutRoomAreReported() async {
        await #expect(processExitsWith: .success) {
            let pair = try SeqPacketSocket.pair()
            #expect(try pair.first.send([1], descriptors: [0, 0, 0]))
            var buffer = PacketBuffer()
            let next = try OwnedDescriptor(duplicating: 0)
            let number = next.rawValue
            next.close()
            try limitDescriptors(to: number + 1)
            #expect(
                try pair.second.receive(into: &buffer)
                    == .packet(length: 1, truncated: false, controlTruncated: true))
            #expect(buffer.descriptorCount == 1)
        }
    }
}

/// Waits for the other end to be closed. A process that another test is launching may hold a copy of it for a
/// while.
private func hearsTheEnd(_ descriptor: CInt) -> Bool {
    eventually { Poll.now(descriptor).contains(.hangUp) }
}
