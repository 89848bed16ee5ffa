import Crypto
import FoundationEssentials
import NightbellWire

/// Voluntary application server identification (RFC 8292): the proof that a sender has the private key that
/// belongs to an address.
struct VAPID {
    /// Of the sender: an uncompressed point of P-256.
    let key: [UInt8]
    private let token: String

    /// The longest time that a proof may be valid, in seconds.
    private static let longestLifetime: Double = 86_400
    /// Clocks differ by less, in seconds.
    private static let clockTolerance: Double = 60

    /// nil: this is no such proof.
    ///
    /// - Parameter authorization: the value of the header field: `vapid t=…, k=…`.
    init?(authorization: String) {
        let parts = authorization.split(separator: " ", maxSplits: 1)
        guard parts.count == 2, parts[0].lowercased() == "vapid" else { return nil }
        var values: [Substring: String] = [:]
        for parameter in parts[1].split(separator: ",") {
            let sides = parameter.drop { $0 == " " }.split(separator: "=", maxSplits: 1)
            guard sides.count == 2 else { return nil }
            values[sides[0]] = sides[1].filter { $0 != "\"" && $0 != " " }
        }
        guard let token = values["t"], let key = values["k"].flatMap(bytes(ofBase64URL:)) else { return nil }
        self.token = token
        self.key = key
    }

    private struct Header: Decodable {
        let alg: String
    }

    private struct Claims: Decodable {
        let aud: Audience
        let exp: Double
    }

    /// One, or several (RFC 7519, section 4.1.3).
    private enum Audience: Decodable {
        case one(String)
        case several([String])

        init(from decoder: any Decoder) throws {
            let container = try decoder.singleValueContainer()
            if let text = try? container.decode(String.self) {
                self = .one(text)
            } else {
                self = .several(try container.decode([String].self))
            }
        }

        func includes(_ audience: Origin) -> Bool {
            switch self {
            case .one(let text): Origin(text) == audience
            case .several(let texts): texts.contains { Origin($0) == audience }
            }
        }
    }

    /// Whether it proves that it was made with the private key, for this service, and not long ago.
    ///
    /// - Parameters:
    ///   - audience: the address of this service.
    ///   - now: in seconds since 1970.
    func isValid(for audience: Origin, at now: Double) -> Bool {
        let parts = token.split(separator: ".", omittingEmptySubsequences: false)
        guard parts.count == 3,
            let header = bytes(ofBase64URL: String(parts[0])),
            let claims = bytes(ofBase64URL: String(parts[1])),
            let signature = bytes(ofBase64URL: String(parts[2])),
            let algorithm = try? JSONDecoder().decode(Header.self, from: Data(header)).alg,
            algorithm == "ES256",
            let claims = try? JSONDecoder().decode(Claims.self, from: Data(claims)),
            claims.aud.includes(audience), claims.exp > now - Self.clockTolerance,
            claims.exp <= now + Self.longestLifetime + Self.clockTolerance,
            let key = try? P256.Signing.PublicKey(x963Representation: key),
            let signature = try? P256.Signing.ECDSASignature(rawRepresentation: Data(signature))
        else { return false }
        return key.isValidSignature(signature, for: Data("\(parts[0]).\(parts[1])".utf8))
    }
}
