import FoundationEssentials

/// Base 64 (RFC 4648 section 4), with padding: the encoding of `NIGHTBELL_LAUNCH`.
package func base64(_ bytes: [UInt8]) -> String {
    Data(bytes).base64EncodedString()
}

/// The bytes of base64url (RFC 4648 section 5), with or without padding; nil for any other text.
package func bytes(ofBase64URL text: String) -> [UInt8]? {
    var plain = text.replacing("-", with: "+").replacing("_", with: "/").filter { $0 != "=" }
    plain += String(repeating: "=", count: (4 - plain.utf8.count % 4) % 4)
    return Data(base64Encoded: plain).map { Array($0) }
}
