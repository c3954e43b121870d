from django.db import models


class SigningKey(models.Model):
    """A public key that this installation signs checkpoints and bundles with, or did. The last row is the one in use.

    Like the ledger, the table is written once: triggers refuse everything else (migration 0010).
    """

    key_id = models.CharField(max_length=64, unique=True, help_text="SHA-256 of the public key")
    public_key = models.BinaryField(help_text="Ed25519, SubjectPublicKeyInfo in DER")
    rotation = models.BinaryField(
        null=True, help_text="the signed statement that it follows the key before; null: none"
    )
    added_at = models.DateTimeField()

    class Meta:
        ordering = ["pk"]

    def __str__(self) -> str:
        return f"key {self.key_id}"
