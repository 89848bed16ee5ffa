import CChat
import CFloors
import Glibc
import Synchronization

/// A chat server with a chosen fault. One thread, no framework; it speaks just enough of the protocol.
final class FaultyChatServer: Sendable {
    enum Fault: Sendable, CaseIterable {
        case none
        /// One receiver does not get a message.
        case drops
        /// No receiver gets a message.
        case swallows
        /// One receiver gets two messages in the wrong order.
        case swaps
        case repeats
        /// Two receivers get different numbers for a message.
        case misnumbers
        /// One receiver does not get a message, and gets another one twice.
        case doubles
        /// One receiver gets a text that was not sent.
        case garbles
    }

    /// The message with the fault: neither the first nor the last of its sender.
    static let wrongMessage = 100

    let port: UInt16
    private let listener: CInt
    private let ending: (reading: CInt, writing: CInt)
    private let thread: Mutex<pthread_t?>

    init(_ fault: Fault) throws {
        listener = socket(AF_INET, CInt(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue), 0)
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_addr.s_addr = UInt32(0x7F00_0001).bigEndian
        var length = socklen_t(MemoryLayout<sockaddr_in>.size)
        let descriptor = listener
        withUnsafeMutableBytes(of: &address) { bytes in
            let pointer = bytes.assumingMemoryBound(to: sockaddr.self).baseAddress
            _ = bind(descriptor, pointer, length)
            listen(descriptor, 1_024)
            getsockname(descriptor, pointer, &length)
        }
        port = UInt16(bigEndian: address.sin_port)
        var ends: [CInt] = [-1, -1]
        _ = cfloors_pipe(&ends)
        ending = (ends[0], ends[1])
        let loop = Loop(listener, ends[0], fault)
        var thread = pthread_t()
        pthread_create(
            &thread, nil,
            { context in
                if let context { Unmanaged<Loop>.fromOpaque(context).takeRetainedValue().run() }
                return nil
            }, Unmanaged.passRetained(loop).toOpaque())
        self.thread = Mutex(thread)
    }

    deinit {
        close(ending.writing)
        thread.withLock { thread in
            if let thread { pthread_join(thread, nil) }
            thread = nil
        }
        close(ending.reading)
        close(listener)
    }
}

private final class Loop {
    private struct Client {
        var bytes: [UInt8] = []
        var isUpgraded = false
        var room = ""
    }

    private let listener: CInt
    private let ending: CInt
    private let fault: FaultyChatServer.Fault
    private var clients: [CInt: Client] = [:]
    private var numbers: [String: Int] = [:]
    private var messages = 0
    /// Whether the same sender has sent more already.
    private var isFollowed = false
    private var isDone = false
    /// A message that a receiver gets after the next one.
    private var held: (client: CInt, object: String)?
    /// The receiver that gets the next message twice.
    private var doubled: CInt?

    init(_ listener: CInt, _ ending: CInt, _ fault: FaultyChatServer.Fault) {
        (self.listener, self.ending, self.fault) = (listener, ending, fault)
    }

    func run() {
        defer { for client in clients.keys { close(client) } }
        while true {
            let descriptors = [ending, listener] + clients.keys
            var entries = descriptors.map { pollfd(fd: $0, events: CShort(POLLIN), revents: 0) }
            guard poll(&entries, nfds_t(entries.count), -1) > 0, entries[0].revents == 0 else { return }
            if entries[1].revents != 0 {
                let client = cfloors_accept(listener)
                if client >= 0 { clients[client] = Client() }
            }
            for entry in entries.dropFirst(2) where entry.revents != 0 { read(entry.fd) }
        }
    }

    private func read(_ descriptor: CInt) {
        var bytes = [UInt8](repeating: 0, count: 65_536)
        let count = recv(descriptor, &bytes, bytes.count, 0)
        guard var client = clients[descriptor], count > 0 else {
            clients[descriptor] = nil
            close(descriptor)
            return
        }
        client.bytes += bytes[..<count]
        if !client.isUpgraded, client.bytes.suffix(4) == Array("\r\n\r\n".utf8)[...] {
            client.isUpgraded = true
            client.bytes = []
            write(
                descriptor,
                Array(
                    ("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: upgrade\r\n"
                        + "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n").utf8))
        }
        var said: [String] = []
        while client.isUpgraded, let text = Self.takeFrame(&client.bytes) { said.append(text) }
        clients[descriptor] = client
        for (index, text) in said.enumerated() {
            isFollowed = index + 1 < said.count
            hear(text, descriptor)
        }
    }

    /// The text of a masked frame that is short.
    private static func takeFrame(_ bytes: inout [UInt8]) -> String? {
        guard bytes.count >= 6, bytes.count >= 6 + Int(bytes[1] & 0x7F) else { return nil }
        let length = Int(bytes[1] & 0x7F)
        let text = (0..<length).map { bytes[6 + $0] ^ bytes[2 + $0 % 4] }
        bytes.removeFirst(6 + length)
        return String(decoding: text, as: UTF8.self)
    }

    private func hear(_ object: String, _ descriptor: CInt) {
        func value(_ name: String) -> String {
            var length = 0
            return object.withCString { text in
                cchat_member(text, object.utf8.count, name, &length).map {
                    String(decoding: UnsafeRawBufferPointer(start: $0, count: length), as: UTF8.self)
                }
            } ?? ""
        }
        switch value("type") {
        case "join":
            clients[descriptor]?.room = value("room")
            say(#"{"history": [], "names": ["\"}"], "type": "welcome", "room": "r"}"#, to: descriptor)
        case "say":
            messages += 1
            tellRoom(value("text"), clients[descriptor]?.room ?? "")
        default: break
        }
    }

    private func tellRoom(_ text: String, _ room: String) {
        // A sender may send nothing more before all have received the last message.
        let isWrong = messages >= FaultyChatServer.wrongMessage && !isDone && (fault != .swaps || isFollowed)
        if isWrong { isDone = true }
        if isWrong, fault == .swallows { return }
        numbers[room, default: 0] += 1
        let number = numbers[room, default: 0]
        func object(_ number: Int) -> String {
            #"{"name":"member \"}","time":1,"type":"message","number":\#(number),"text":"\#(text)"}"#
        }
        var isFirst = true
        for client in clients.keys.sorted() where clients[client]?.room == room {
            switch isWrong && isFirst ? fault : .none {
            case .drops: break
            case .doubles: doubled = client
            case .garbles:
                say(object(number).replacing("from one", with: "from two"), to: client)
            case .swaps: held = (client, object(number))
            case .repeats:
                say(object(number), to: client)
                say(object(number), to: client)
            case .misnumbers: say(object(number + 1), to: client)
            case .none, .swallows:
                say(object(number), to: client)
                if doubled == client {
                    doubled = nil
                    say(object(number), to: client)
                }
                if let late = held, late.client == client {
                    held = nil
                    say(late.object, to: client)
                }
            }
            isFirst = false
        }
    }

    private func say(_ text: String, to descriptor: CInt) {
        let payload = Array(text.utf8)
        let header: [UInt8] =
            payload.count < 126
            ? [0x81, UInt8(payload.count)]
            : [0x81, 126, UInt8(payload.count >> 8), UInt8(payload.count & 0xFF)]
        write(descriptor, header + payload)
    }

    private func write(_ descriptor: CInt, _ bytes: [UInt8]) {
        send(descriptor, bytes, bytes.count, CInt(MSG_NOSIGNAL))
    }
}
