import CCurl
import LinuxSystem
import TransferModel

/// One attempt of a task: a request, and the file that receives the response.
final class Attempt {
    /// The reason why the attempt was ended from here.
    enum Stop {
        case noRoom
        case diskFull
        case tooLarge
        case tooLong
        case storage
        /// The response was judged, and its body is of no use.
        case judged
    }

    let id: TaskID
    let transfer: CurlTransfer
    let file: OpenFile
    let body: OpenFile?
    /// The request for the part that was there.
    let asked: PartialBody.Request
    /// The part that is there.
    var facts: PartialBody
    var decision: ResponseDecision?
    var stop: Stop?
    /// Bytes of the body of a refusal, which are dropped.
    var droppedBytes = 0
    /// The part that was written to the disk, or is being.
    var checkpoint: Int64
    /// The room on the disk is looked at again when the part has so many bytes.
    var nextLookForRoom: Int64 = 0

    /// A longer body of a refusal ends the connection: reading it would take longer than another one.
    static let mostDroppedBytes = 64 * 1024
    /// In bytes, between two times that the file is written to the disk.
    static let checkpointDistance: Int64 = 32 << 20

    init(
        _ id: TaskID, _ transfer: CurlTransfer, file: OpenFile, body: OpenFile?, facts: PartialBody,
        asked: PartialBody.Request
    ) {
        self.id = id
        self.transfer = transfer
        self.file = file
        self.body = body
        self.facts = facts
        self.asked = asked
        checkpoint = facts.bytes
    }

    /// Whether the response continues or replaces the part that is there.
    var stores: Bool {
        switch decision {
        case .append, .replace: true
        case .complete, .startOver, .retry, .needsCredentials, .fail, nil: false
        }
    }
}
