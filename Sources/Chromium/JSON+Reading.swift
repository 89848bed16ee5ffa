import FoundationEssentials
package import Presentation

extension JSON {
    /// The member of an object; null: there is none.
    package subscript(name: String) -> JSON {
        guard case .object(let members) = self else { return .null }
        return members.first { $0.name == name }?.value ?? .null
    }

    init(reading bytes: some Sequence<UInt8>) throws(Chromium.Failure) {
        do {
            self = try JSONDecoder().decode(Read.self, from: Data(bytes)).value
        } catch {
            throw Chromium.Failure("the browser says what is no JSON: \(error)")
        }
    }

    private struct Read: Decodable {
        let value: JSON

        private struct Name: CodingKey {
            let stringValue: String
            var intValue: Int? { nil }

            init(stringValue: String) { self.stringValue = stringValue }
            init?(intValue: Int) { nil }
        }

        init(from decoder: any Decoder) throws {
            if let object = try? decoder.container(keyedBy: Name.self) {
                value = .object(
                    try object.allKeys.map { name in
                        Member(
                            name: name.stringValue, value: try object.decode(Read.self, forKey: name).value)
                    })
                return
            }
            if let array = try? decoder.singleValueContainer().decode([Read].self) {
                value = .array(array.map(\.value))
                return
            }
            let single = try decoder.singleValueContainer()
            if let flag = try? single.decode(Bool.self) {
                value = .bool(flag)
            } else if let number = try? single.decode(Int64.self) {
                value = .integer(number)
            } else if let number = try? single.decode(Double.self) {
                value = .number(number)
            } else if let text = try? single.decode(String.self) {
                value = .string(text)
            } else {
                value = .null
            }
        }
    }
}
