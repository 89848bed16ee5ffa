internal import FoundationEssentials
internal import NIOWebSocket

/// A client's message: one JSON object in each text message.
struct ClientWords: Decodable {
    enum Kind: String, Decodable {
        case join, say, leave
    }

    let type: Kind
    var room: String?
    var name: String?
    var text: String?
}

/// A line in the history of a room.
struct Line: Encodable, Equatable {
    let name: String
    let text: String
    /// Consecutive within a room.
    let number: UInt64
    /// Milliseconds since 1970.
    let time: Int64

    /// Its approximate memory.
    var byteCount: Int { name.utf8.count + text.utf8.count + 64 }
}

/// A message of the server.
enum ServerWords: Encodable {
    case welcome(room: String, names: [String], members: Int, history: [Line])
    case message(room: String, Line)
    case joined(name: String)
    case left(name: String)
    case count(members: Int)
    case error(String)

    private enum Key: CodingKey {
        case type, room, names, members, history, name, text, number, time
    }

    func encode(to encoder: any Encoder) throws {
        var object = encoder.container(keyedBy: Key.self)
        switch self {
        case .welcome(let room, let names, let members, let history):
            try object.encode("welcome", forKey: .type)
            try object.encode(room, forKey: .room)
            try object.encode(names, forKey: .names)
            try object.encode(members, forKey: .members)
            try object.encode(history, forKey: .history)
        case .message(let room, let line):
            try object.encode("message", forKey: .type)
            try object.encode(room, forKey: .room)
            try object.encode(line.name, forKey: .name)
            try object.encode(line.text, forKey: .text)
            try object.encode(line.number, forKey: .number)
            try object.encode(line.time, forKey: .time)
        case .joined(let name):
            try object.encode("joined", forKey: .type)
            try object.encode(name, forKey: .name)
        case .left(let name):
            try object.encode("left", forKey: .type)
            try object.encode(name, forKey: .name)
        case .count(let members):
            try object.encode("count", forKey: .type)
            try object.encode(members, forKey: .members)
        case .error(let text):
            try object.encode("error", forKey: .type)
            try object.encode(text, forKey: .text)
        }
    }

    /// These words as a text message of WebSocket.
    func frame(_ encoder: JSONEncoder) -> Frame {
        do {
            return Frame(.text, try encoder.encode(self))
        } catch {
            preconditionFailure("strings and numbers can be written as JSON: \(error)")
        }
    }
}
