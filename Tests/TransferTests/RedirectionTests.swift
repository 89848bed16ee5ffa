import EdgeTestSupport
import Glibc
import LinuxSystem
import SwiftProtobuf
import Testing
import TransferClient
import TransferWire

/// Redirections, and the methods and addresses that follow them.
@Suite("Redirections of transfers")
struct RedirectionTests {
    @Test("GET follows 303, whatever the method was", arguments: ["PUT", "POST", "PATCH"])
    func seeOther(method: String) throws {
        let server = try OddServer()
        let process = try TransferProcess()
        let client = try process.open()
        let path = process.directory.path + "/source"
        try Nginx.write(randomBytes(100_000), to: path)
        let source = try OwnedDescriptor(opening: path, O_RDONLY)
        try client.add(server.address + "/see-other?to=/good%3Fseed%3Da%26size%3D1000", body: source.rawValue)
        {
            $0.method = method
            $0.wantsDigest = true
        }
        let result = try client.nextResult().0
        #expect(result.failure == .none && result.status == 200, "\(result)")
        #expect(hexadecimal(result.digest) == (try server.digest(seed: "a", size: 1_000)))
        let methods = try server.requests().map { request in
            ["GET", method].first { request.contains("\"method\": \"\($0)\"") }
        }
        #expect(methods == [method, "GET"])
    }

    @Test("An address that was redirected to a secure one is not redirected to one that is not")
    func security() throws {
        let secure = try Nginx()
        try secure.add("a", [1, 2, 3])
        let server = try OddServer()
        let process = try TransferProcess(["--authorities", secure.authorities])
        let client = try process.open()
        let plain = server.address + "/redirect?to=" + secure.secureAddress
        try client.add(plain + "/a")
        #expect(try client.nextResult().0.failure == .none)
        try client.add(plain + "/moved%3Fto%3D" + secure.secureAddress + "/a")
        #expect(try client.nextResult().0.failure == .none)
        try client.add(plain + "/moved%3Fto%3D" + server.address + "/good")
        #expect(try client.nextResult().0.failure == .refused)
        #expect(try server.requests().allSatisfy { !$0.contains("\"path\": \"/good") })
    }

    @Test("Credentials follow to the same server, and to no other")
    func credentials() throws {
        let (server, other) = (try OddServer(), try OddServer())
        let process = try TransferProcess()
        let client = try process.open()
        func fetch(_ target: String) throws -> WireTransferReport {
            try client.add(server.address + "/redirect?to=\(target)/secret%3Fseed%3Da%26size%3D1000") {
                $0.fields = [
                    .with {
                        $0.name = "Authorization"
                        $0.value = "Bearer open"
                    }
                ]
            }
            return try require(try client.next()).0
        }
        #expect(try fetch("").finished.status == 200)
        _ = try require(try client.next())
        let challenge = try fetch(other.address)
        #expect(challenge.challenge.task > 0, "\(challenge)")
        #expect(try other.requests().count == 1)
    }
}
