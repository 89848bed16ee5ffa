import Testing

@testable import NightbellCore

@Suite struct OwnersTests {
    /// Against a dictionary.
    @Test func itIsADictionary() throws {
        var owners = Owners()
        var dictionary: [ClientIdentifier: Supervision.Ownership] = [:]
        for number in 1...20_000 as ClosedRange<UInt64> {
            let identifier = try #require(ClientIdentifier("client-\(Int.random(in: 0..<400))"))
            switch Int.random(in: 0..<3) {
            case 0:
                owners[identifier] = nil
                dictionary[identifier] = nil
            case 1:
                let ownership = Supervision.Ownership(
                    user: UInt32(number % 7), client: nil, isQuit: number % 2 == 0, number: number,
                    givenUp: number * 3)
                owners[identifier] = ownership
                dictionary[identifier] = ownership
            default:
                owners[identifier]?.client = ClientID(rawValue: number << 32 | 5)
                dictionary[identifier]?.client = ClientID(rawValue: number << 32 | 5)
                owners[identifier]?.givenUp = 0
                dictionary[identifier]?.givenUp = 0
            }
            #expect(owners[identifier] == dictionary[identifier])
        }
        #expect(Set(owners.keys) == Set(dictionary.keys) && owners.keys.count == dictionary.count)
        for (identifier, ownership) in dictionary { #expect(owners[identifier] == ownership) }
    }
}

@Suite struct TokenListTests {
    @Test func itIsAnArray() {
        var list = TokenList()
        var array: [SocketToken] = []
        #expect(list.isEmpty)
        for number in 1...5 as ClosedRange<UInt64> {
            list.append(SocketToken(rawValue: number << 32))
            array.append(SocketToken(rawValue: number << 32))
            #expect(Array(list) == array)
        }
        list[0] = SocketToken(rawValue: 9 << 32)
        list[3] = SocketToken(rawValue: 10 << 32)
        array[0] = list[0]
        array[3] = list[3]
        while let last = array.popLast() {
            #expect(list.removeLast() == last)
            #expect(Array(list) == array)
        }
        #expect(list.isEmpty)
    }
}
