import Crypto
import Foundation

/// The proof that a request is from the sender that an address is for (RFC 8292).
enum SenderProof {
    static func text(_ data: Data) -> String {
        data.base64EncodedString().replacing("+", with: "-").replacing("/", with: "_").replacing(
            "=", with: "")
    }

    /// The header of a request.
    static func header(_ key: P256.Signing.PrivateKey, _ claims: [String: Any]) throws -> String {
        let header = text(Data(#"{"typ":"JWT","alg":"ES256"}"#.utf8))
        let signed = header + "." + text(try JSONSerialization.data(withJSONObject: claims))
        let signature = text(try key.signature(for: Data(signed.utf8)).rawRepresentation)
        return "Authorization: vapid t=\(signed).\(signature), k=\(text(key.publicKey.x963Representation))"
    }
}
