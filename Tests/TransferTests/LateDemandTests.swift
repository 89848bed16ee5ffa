import EdgeTestSupport
import EventHandlers
import Glibc
import LinuxSystem
import SwiftProtobuf
import Testing
import TransferEngine
import TransferWire

@Suite("Demands at the end of a process")
struct LateDemandTests {
    @Test("A demand that comes too late for a process cannot be sent: the supervisor has it for the next one")
    func late() throws {
        let directory = try TemporaryDirectory()
        let (own, theirs) = try DemandedProcess.pair()
        let supervisor = SeqPacketSocket(adopting: OwnedDescriptor(adopting: own))
        let loop = try HandlerLoop()
        var configuration = TransferConfiguration(directory: directory.path + "/data")
        configuration.idleTime = 1
        let engine = try TransferEngine(loop, configuration)
        let link = try SupervisorLink(
            loop, engine, SeqPacketSocket(adopting: OwnedDescriptor(adopting: theirs)))
        let listener = try SeqPacketSocket.listen(path: directory.path + "/socket", mode: 0o600)
        let server = try TransferServer(loop, engine, listener: listener, supervisor: link)
        let demand: [UInt8] = try WireTransferDemand().serializedBytes()
        #expect(try supervisor.send(demand))
        #expect(try server.run())
        #expect(throws: SystemError.self) { try supervisor.send(demand) }
        withExtendedLifetime((server, link)) {}
    }
}
