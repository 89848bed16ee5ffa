import CFloors
import Glibc
import LinuxSystem

/// Records of the clients of a push run for the harness, in memory that all processes map.
final class PushSharedMemory {
    enum ClientWord: Int, CaseIterable {
        /// It has its address, or has said that it has none.
        case isReady
        case wakes, failures
    }

    /// Each has one writer: the process of the message's client.
    enum PushWord: Int, CaseIterable {
        /// When the handler ran first, in nanoseconds.
        case handledAt
        /// The service's number of the message.
        case id
        /// Further runs with this number, and with another one.
        case repeated, duplicate
    }

    /// An address has at most so many bytes.
    static let addressBytes = 128

    let descriptor: OwnedDescriptor
    let clients: Int
    let pushes: Int
    private let words: UnsafeMutablePointer<UInt64>
    private let length: Int

    init(clients: Int, pushes: Int, inherited: CInt? = nil) throws(LoadError) {
        let number = inherited ?? cfloors_memory("nightbell-push")
        guard number >= 0 else { throw LoadError(failed: "memfd_create") }
        descriptor = OwnedDescriptor(adopting: number)
        self.clients = clients
        self.pushes = pushes
        length =
            (clients * ClientWord.allCases.count + pushes * PushWord.allCases.count) * 8 + clients
            * Self.addressBytes
        if inherited == nil, ftruncate(number, off_t(length)) != 0 { throw LoadError(failed: "ftruncate") }
        let memory = mmap(nil, length, PROT_READ | PROT_WRITE, MAP_SHARED, number, 0)
        guard let memory, memory != MAP_FAILED else { throw LoadError(failed: "mmap") }
        words = memory.bindMemory(to: UInt64.self, capacity: length / 8)
    }

    deinit { munmap(words, length) }

    subscript(client: Int, word: ClientWord) -> UInt64 {
        get { words[client * ClientWord.allCases.count + word.rawValue] }
        set { words[client * ClientWord.allCases.count + word.rawValue] = newValue }
    }

    subscript(push push: Int, word: PushWord) -> UInt64 {
        get { words[start(push) + word.rawValue] }
        set { words[start(push) + word.rawValue] = newValue }
    }

    private func start(_ push: Int) -> Int {
        clients * ClientWord.allCases.count + push * PushWord.allCases.count
    }

    /// The path of a client's address; empty: it has none yet.
    subscript(address client: Int) -> String {
        get {
            let bytes = addressBuffer(client)
            return String(decoding: bytes.prefix { $0 != 0 }, as: UTF8.self)
        }
        set {
            let bytes = addressBuffer(client)
            for (index, byte) in newValue.utf8.prefix(Self.addressBytes - 1).enumerated() {
                bytes[index] = byte
            }
        }
    }

    private func addressBuffer(_ client: Int) -> UnsafeMutableBufferPointer<UInt8> {
        let base = UnsafeMutableRawPointer(words + start(pushes)).assumingMemoryBound(to: UInt8.self)
        return UnsafeMutableBufferPointer(start: base + client * Self.addressBytes, count: Self.addressBytes)
    }

    /// A client handles a message.
    func note(push: Int, id: UInt64) {
        if self[push: push, .handledAt] == 0 {
            self[push: push, .id] = id
            self[push: push, .handledAt] = UInt64(monotonicNow())
        } else if self[push: push, .id] == id {
            self[push: push, .repeated] += 1
        } else {
            self[push: push, .duplicate] += 1
        }
    }

    /// Whether the supervisor can launch a client again: every other one.
    static func isLaunchable(_ client: Int) -> Bool { client % 2 == 1 }
}
