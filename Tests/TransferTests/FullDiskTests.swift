import EdgeTestSupport
import Glibc
import LinuxSystem
import SwiftProtobuf
import Testing
import TransferClient
import TransferWire

/// Downloads to a file system that is too small for them. Needs root.
@Suite("Downloads and a full disk", .enabled(if: geteuid() == 0), .timeLimit(.minutes(5)))
struct FullDiskTests {
    private let server: OddServer
    private let process: TransferProcess
    private let client: TransferClient

    init() throws {
        server = try OddServer()
        process = try TransferProcess(diskBytes: 24 << 20)
        client = try process.open()
    }

    /// The next result, which is whole; it is released.
    private func takeResult() throws -> String {
        let (result, _) = try client.nextResult()
        #expect(result.failure == .none, "\(result)")
        try client.release(result.task)
        return result.tag
    }

    private func received(_ task: Int64) throws -> UInt64 {
        try client.request { $0.list.after = 0 }.tasks.first { $0.task == task }?.receivedBytes ?? 0
    }

    @Test(
        "Two that each fit alone finish one after the other", arguments: ["slow?times=0", "chunked?times=0"])
    func besideEachOther(path: String) throws {
        for tag in ["a", "b"] {
            try client.add("\(server.address)/\(path)&ms=2&seed=\(tag)&size=14000000", tag: tag)
        }
        #expect(try Set([takeResult(), takeResult()]) == ["a", "b"])
    }

    @Test("Two for which another program leaves too little room finish one after the other")
    func besideAnotherProgram() throws {
        let tasks = try ["a", "b"].map { tag in
            try client.add("\(server.address)/slow?ms=20&seed=\(tag)&size=9000000", tag: tag)
        }
        #expect(try eventually { try tasks.allSatisfy { try received($0) > 1_000_000 } })
        try require(process.disk).take(bytes: 9_000_000)
        #expect(try Set([takeResult(), takeResult()]) == ["a", "b"])
    }

    @Test("One that is too large leaves the disk to others", arguments: ["good?times=0", "chunked?times=0"])
    func tooLarge(path: String) throws {
        let large = try client.add("\(server.address)/\(path)&seed=l&size=40000000", tag: "large")
        let file = process.data + "/sessions/1/\(large).data"
        var status = stat()
        // It has had what there was, unless its length tells that it does not fit.
        #expect(
            try eventually(within: 30_000) {
                let isEmpty = stat(file, &status) == 0 && status.st_size == 0
                return try isEmpty && client.request { $0.list.after = 0 }.tasks.map(\.state) == [.waiting]
                    && server.requests().count > 1
            })
        for tag in ["a", "b", "c", "d"] {
            try client.add("\(server.address)/good?seed=\(tag)&size=9000000", tag: tag)
        }
        #expect(try Set((0..<4).map { _ in try takeResult() }) == ["a", "b", "c", "d"])
        #expect(try received(large) == 0)
    }

    @Test("A client is told once of the results that it can release for one that finds the disk full")
    func told() throws {
        try client.add("\(server.address)/good?seed=a&size=14000000", tag: "a")
        let (result, _) = try client.nextResult()
        // Before the end of the session is told.
        try client.add("\(server.address)/good?seed=b&size=14000000", tag: "b")
        var ends = 0
        while let (report, _) = try client.next(within: ends == 0 ? 60_000 : 2_000) {
            if case .sessionFinished = report.report { ends += 1 }
        }
        #expect(ends == 1)
        try client.release(result.task)
        #expect(try takeResult() == "b")
    }

    @Test("The store is for its user alone")
    func permissions() throws {
        // As an earlier version has made it.
        for suffix in ["", "-wal"] { #expect(chmod(process.data + "/transfers.sqlite" + suffix, 0o644) == 0) }
        try process.restart()
        _ = try process.open()
        for suffix in ["", "-wal", "-shm"] {
            var status = stat()
            #expect(stat(process.data + "/transfers.sqlite" + suffix, &status) == 0)
            #expect(status.st_mode & 0o777 == 0o600, "\(suffix)")
        }
    }
}
